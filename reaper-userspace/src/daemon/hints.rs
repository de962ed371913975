//! Where hints come from: the probes, or nothing but the clock.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::mpsc::Receiver;

use super::awake::Awake;
use super::clock;
use super::listen::{Batch, Heard, Listening, listen};
use crate::event::Occurrence;
use crate::ident::{CgroupRef, ProcessKey, StartTicks, Tgid};
use crate::kernel::chain;
use crate::metrics::ProbeLevel;
use crate::probe::{self, Level, Losses, Probe};
use crate::procfs;
use crate::verdict::Freshness;

/// Which probes are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    /// The best that works here
    #[default]
    Auto,
    /// BPF programs on typed tracepoints, or fail
    Btf,
    /// BPF programs on classic tracepoints, for kernels without type information, or fail
    Classic,
    /// None: look from time to time only
    Poll,
}

/// The kernel reports a signal when it is sent; the reader only has to be scheduled.
const KILLS_WAIT: Duration = Duration::from_millis(250);

/// A source of hints.
#[derive(Debug)]
pub(super) struct Hints {
    probe: Option<Probe>,
    heard: Option<Receiver<Batch>>,
    /// Read while waiting for something else.
    kept: Vec<Heard>,
    tracked: BTreeSet<CgroupRef>,
    watched: BTreeSet<ProcessKey>,
    covered: Losses,
    awake: Awake,
}

// === impl Hints ===

impl Hints {
    /// Loads what is wanted. With [`Wanted::Auto`] a failure is logged, and the next level is tried.
    pub(super) fn start(wanted: Wanted) -> anyhow::Result<Self> {
        let (probe, heard) = load(wanted)?.unzip();
        let (tracked, watched, covered) = (BTreeSet::new(), BTreeSet::new(), Losses::default());
        Ok(Self { probe, heard, kept: vec![], tracked, watched, covered, awake: clock::awake() })
    }

    /// How hints are obtained.
    pub(super) fn level(&self) -> ProbeLevel {
        match self.probe.as_ref().map(Probe::level) {
            Some(Level::Btf) => ProbeLevel::Btf,
            Some(Level::Classic) => ProbeLevel::Classic,
            None => ProbeLevel::Poll,
        }
    }

    /// Whether events come at all.
    pub(super) const fn is_live(&self) -> bool {
        self.probe.is_some()
    }

    /// What had been lost when the last full look began.
    pub(super) const fn covered(&self) -> Losses {
        self.covered
    }

    /// Waits for events; for ever where there are no probes. Cancel safe.
    pub(super) async fn next(&mut self) -> anyhow::Result<Vec<Heard>> {
        if !self.kept.is_empty() {
            return Ok(std::mem::take(&mut self.kept));
        }
        self.receive().await
    }

    /// Whether the kernel says whom this process kills.
    pub(super) fn tells_kills(&self) -> bool {
        self.level() == ProbeLevel::Btf
    }

    /// Waits until the kernel has told of so many kills of ours, or for long enough; every other event is kept for
    /// [`Hints::next`].
    pub(super) async fn kills(&mut self, expected: usize) -> anyhow::Result<Vec<ProcessKey>> {
        let until = tokio::time::Instant::now().checked_add(KILLS_WAIT);
        let deadline = until.context("no time")?;
        let mut found = vec![];
        loop {
            if found.len() >= expected {
                return Ok(found);
            }
            match tokio::time::timeout_at(deadline, self.receive()).await {
                Ok(batch) => {
                    let batch = batch?;
                    found.extend(batch.iter().filter_map(killed));
                    self.kept.extend(batch.into_iter().filter(|heard| killed(heard).is_none()));
                }
                Err(_elapsed) => return Ok(found),
            }
        }
    }

    async fn receive(&mut self) -> anyhow::Result<Vec<Heard>> {
        match &mut self.heard {
            Some(heard) => Ok(heard.recv().await.context("nobody reads the events any more")??),
            None => std::future::pending().await,
        }
    }

    /// Asks for the events of these cgroups, and forgets the others. True if the kernel's side did not know one: what
    /// happened there until now was not reported.
    pub(super) fn track(&mut self, wanted: BTreeSet<CgroupRef>) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        let mut new = false;
        for cgroup in self.tracked.difference(&wanted) {
            if let Err(error) = probe.untrack(*cgroup) {
                tracing::warn!(error = %chain(&error), "events still come from a cgroup that is nobody's");
            }
        }
        for cgroup in wanted.difference(&self.tracked) {
            match probe.track(*cgroup) {
                Ok(added) => new |= added,
                // Its events are hints: without them the periodic look finds the same, later.
                Err(error) => tracing::warn!(error = %chain(&error), "no events from this cgroup"),
            }
        }
        self.tracked = wanted;
        new
    }

    /// Asks for the lives of these processes and of what they start. Shims that began after the probes are known to the
    /// kernel's side already. Ended ones it forgets by itself: by now their number may mean another one. True as above.
    pub(super) fn watch(&mut self, wanted: BTreeSet<ProcessKey>) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        let mut new = false;
        for process in wanted.difference(&self.watched) {
            match probe.watch(*process) {
                Ok(added) => new |= added,
                // What it starts is seen by name at its exec, all the same.
                Err(error) => tracing::warn!(error = %chain(&error), %process, "no events from this process"),
            }
            // Ended meanwhile: its number must not be watched for the sake of who has it next.
            if start_of(process.tgid) != Some(process.start)
                && let Err(error) = probe.unwatch(*process)
            {
                tracing::warn!(error = %chain(&error), %process, "events may come from a stranger with its number");
            }
        }
        self.watched = wanted;
        new
    }

    /// Housekeeping of the kernel's side, from time to time.
    pub(super) fn tidy(&mut self) {
        if let Some(probe) = &mut self.probe
            && let Err(error) = probe.tidy()
        {
            tracing::warn!(error = %chain(&error), "processes that concern nobody cost a little more");
        }
    }

    /// A full look begins: what was lost until now, it makes good. Returns whether anything was.
    pub(super) fn cover(&mut self) -> bool {
        let before = self.covered;
        self.covered = self.losses().unwrap_or(self.covered);
        self.covered != before
    }

    /// Whether anything was missed since the last full look began, or the machine slept since the last one ended.
    pub(super) fn freshness(&self) -> Freshness {
        if let Some(slept) = self.slept() {
            return Freshness::Stale(format!(
                "the machine slept for {slept:.0?}, nobody could do anything meanwhile"
            ));
        }
        match self.losses() {
            Some(losses) if losses == self.covered => Freshness::Fresh,
            Some(losses) => Freshness::Stale(format!(
                "{} kernel events were lost since the last look",
                losses.total().saturating_sub(self.covered.total())
            )),
            None => Freshness::Stale("the count of lost events cannot be read".to_owned()),
        }
    }

    /// How long the machine slept, if no look has ended since.
    pub(super) fn slept(&self) -> Option<Duration> {
        self.awake.slept_until(clock::awake())
    }

    /// A look has ended that began at this moment: it knew of every suspend before.
    pub(super) const fn looked(&mut self, began: Awake) {
        self.awake = began;
    }

    /// Whether a look is due that no event asks for: something was lost without a trace, or the machine slept.
    pub(super) fn is_overdue(&self) -> bool {
        self.slept().is_some() || self.losses().is_some_and(|losses| losses != self.covered)
    }

    /// What was lost so far; `None` if that cannot be told.
    pub(super) fn losses(&self) -> Option<Losses> {
        match &self.probe {
            None => Some(Losses::default()),
            Some(probe) => probe
                .losses()
                .inspect_err(|error| tracing::warn!(error = %chain(error), "cannot count lost events"))
                .ok(),
        }
    }
}

fn load(wanted: Wanted) -> anyhow::Result<Option<Listening>> {
    let optional = wanted == Wanted::Auto;
    let levels: &[Level] = match wanted {
        Wanted::Poll => return Ok(None),
        Wanted::Auto => &Level::ALL,
        Wanted::Btf => &[Level::Btf],
        Wanted::Classic => &[Level::Classic],
    };
    let Some(object) = probe::embedded() else {
        let reason = "this binary was built without the BPF object (cargo xtask build)";
        anyhow::ensure!(optional, reason);
        tracing::warn!("level poll: {reason}");
        return Ok(None);
    };
    let (listening, failed) = listen(levels, object)?;
    for (level, error) in failed {
        if !optional {
            return Err(error).with_context(|| format!("no probes of level {level}"));
        }
        tracing::warn!(error = %chain(&error), "no probes of level {level}");
    }
    if listening.is_none() {
        tracing::warn!("level poll: looking from time to time instead");
    }
    Ok(listening)
}

/// Whom this event says we killed.
pub(super) const fn killed(heard: &Heard) -> Option<ProcessKey> {
    match heard.event.what {
        Occurrence::Killed { process, .. } => Some(process),
        Occurrence::Forked { .. }
        | Occurrence::Execed { .. }
        | Occurrence::Exited { .. }
        | Occurrence::Unidentified { .. }
        | Occurrence::CgroupMade { .. }
        | Occurrence::CgroupRemoved { .. }
        | Occurrence::CgroupPopulated { .. }
        | Occurrence::CgroupFrozen { .. } => None,
    }
}

fn start_of(tgid: Tgid) -> Option<StartTicks> {
    procfs::start_of(tgid).found().copied()
}
