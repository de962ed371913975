//! The stage: a private containerd, its live containers and its leaks, and the neighbours.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use reaper_tests::{Bystander, CgroupView, Containerd, Crash, Leak, Live, Node, Shape, Watch};

use super::say::Say;

const LIVE: [(&str, Shape); 5] = [
    ("web", Shape::Plain),
    ("worker", Shape::Several),
    ("paused", Shape::Paused),
    ("nested", Shape::Nested),
    ("batch", Shape::Plain),
];

const LEAKS: [(&str, Crash, &str); 7] = [
    ("frozen", Crash::FrozenCreate, "runc create killed, init frozen"),
    ("busy1", Crash::FrozenCreateBusyRootfs, "runc create killed, init frozen, rootfs busy"),
    ("busy2", Crash::FrozenCreateBusyRootfs, "runc create killed, init frozen, rootfs busy"),
    ("busy3", Crash::FrozenCreateBusyRootfs, "runc create killed, init frozen, rootfs busy"),
    ("empty", Crash::ThawedCreate, "runc create killed, empty directories left"),
    ("orphan", Crash::OrphanedChildren, "shim, runc delete and init killed, children left"),
    ("tree", Crash::NestedTree, "shim and runc delete killed, nested directories left"),
];

/// What the demo made.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) containerd: Containerd,
    pub(super) leaks: Vec<Leak>,
    live: Vec<Live>,
    neighbours: Neighbours,
    bystanders: Watch,
}

/// Another containerd with a live container, and a process in a cgroup that looks like a container's.
#[derive(Debug)]
struct Neighbours {
    #[expect(dead_code, reason = "held for its destructor")]
    bystander: Bystander,
    containerd: Containerd,
}

// === impl Stage ===

impl Stage {
    pub(super) fn set(say: &mut Say, view: CgroupView, keep: bool) -> Result<Self> {
        let mut containerd = Containerd::start(Node::new(view)?)?;
        if keep {
            containerd.keep();
            say.line(&format!("logs are kept in {}", containerd.node().dir().display()));
        }
        say.line(&format!(
            "{} on cgroup {view:?}, started in {} ms",
            containerd.version()?,
            containerd.first_start().as_millis()
        ));
        let mut live = Vec::new();
        for (label, shape) in LIVE {
            say.check()?;
            live.push(containerd.live(label, shape)?);
        }
        say.line("live: web, worker (3 processes), paused, nested (cgroups below its own), batch");
        let neighbour = Containerd::start(Node::new(view)?)?;
        let bystander = Bystander::start(neighbour.node())?;
        let stranger = neighbour.live("stranger", Shape::Plain)?;
        say.line("neighbours: a second containerd with a container, a process in a container-like cgroup");
        let bystanders = Watch::of([stranger.init, bystander.incarnation()]);
        let neighbours = Neighbours { bystander, containerd: neighbour };
        Ok(Self { containerd, leaks: Vec::new(), live, neighbours, bystanders })
    }

    /// Makes all leaks at once: the busy ones take 10 s each, which is the runtime's own attempt at removal.
    pub(super) fn leak(&mut self, say: &mut Say) -> Result<()> {
        let containerd = &self.containerd;
        let make_all = || {
            std::thread::scope(|scope| {
                let makers =
                    LEAKS.map(|(label, crash, _)| scope.spawn(move || containerd.crash(label, crash)));
                let join = |maker: std::thread::ScopedJoinHandle<'_, Result<Leak>>| {
                    maker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a leak maker panicked")))
                };
                makers.into_iter().map(join).collect::<Result<Vec<_>>>()
            })
        };
        say.line("the runtime's own removal gives up after 10 s where a rootfs is busy");
        self.leaks = say.during(make_all, || containerd.kill())?;
        for (leak, (_, _, how)) in self.leaks.iter().zip(LEAKS) {
            say.line(&format!(
                "{:<20} {} ({how}; processes {}, directories {})",
                leak.kind.as_str(),
                leak.id,
                leak.members.len(),
                leak.dirs.len()
            ));
        }
        Ok(())
    }

    /// Restarts the containerd and returns the milliseconds until it served.
    pub(super) fn restart(&self, say: &mut Say) -> Result<u64> {
        let containerd = &self.containerd;
        let took = say.during(|| containerd.restart(), || containerd.kill())?;
        let millis = u64::try_from(took.as_millis()).context("a start that takes for ever")?;
        say.line(&format!("containerd serves again after {millis} ms"));
        Ok(millis)
    }

    /// Leaks by kind.
    pub(super) fn made(&self) -> BTreeMap<&'static str, usize> {
        let mut made = BTreeMap::new();
        for leak in &self.leaks {
            let count: &mut usize = made.entry(leak.kind.as_str()).or_default();
            *count = count.saturating_add(1);
        }
        made
    }

    pub(super) fn live_count(&self) -> Result<usize> {
        let alive: Result<Vec<bool>> =
            self.live.iter().map(|live| live.still_alive(&self.containerd)).collect();
        Ok(alive?.into_iter().filter(|alive| *alive).count())
    }

    /// One line for each leak of which a process or a directory is left.
    pub(super) fn leaks_left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for leak in &self.leaks {
            if !leak.is_gone()? {
                left.push(format!("leak {} {}", leak.kind.as_str(), leak.id));
            }
        }
        Ok(left)
    }

    /// Bystanders that have died.
    pub(super) fn bystanders_dead(&self) -> Result<usize> {
        Ok(self.bystanders.dead()?.len())
    }

    /// Removes everything; returns what is left of it on the machine.
    pub(super) fn clear(self) -> Result<Vec<String>> {
        let traces = [self.containerd.traces(), self.neighbours.containerd.traces()];
        drop(self);
        let mut left = Vec::new();
        for trace in traces {
            left.extend(trace.left()?);
        }
        Ok(left)
    }
}
