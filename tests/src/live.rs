//! Containers that run and must go on running.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::containerd::{Containerd, Rootfs};
use crate::process::Incarnation;
use crate::runc::Faults;
use crate::wait::{wait_for, wait_until};

const LIMIT: Duration = Duration::from_secs(20);

/// What is special about a live container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One process.
    Plain,
    /// Init and two children.
    Several,
    /// Paused by `ctr task pause`: frozen as a half-created one is.
    Paused,
    /// All processes in a child cgroup, so that the leaf's `cgroup.procs` is empty in every hierarchy.
    Nested,
}

/// A running (or paused) container.
#[derive(Clone, Debug)]
pub struct Live {
    /// The container's id.
    pub id: String,
    /// What is special about it.
    pub shape: Shape,
    /// Its init.
    pub init: Incarnation,
    /// Its cgroup's path from the root of each hierarchy.
    pub cgroup: String,
}

// === impl Live ===

impl Live {
    /// The same init runs, and containerd says so. An error if containerd does not answer.
    pub fn still_alive(&self, containerd: &Containerd) -> Result<bool> {
        let wanted = if self.shape == Shape::Paused { "PAUSED" } else { "RUNNING" };
        let tasks = containerd.tasks()?;
        let known =
            tasks.get(&self.id).is_some_and(|task| task.pid == self.init.pid && task.status == wanted);
        Ok(known && self.init.is_alive()?)
    }
}

// === impl Containerd ===

impl Containerd {
    /// Runs a container that lives until the containerd is dropped.
    pub fn live(&self, label: &str, shape: Shape) -> Result<Live> {
        self.live_with(label, shape, &Faults::default())
    }

    pub(crate) fn live_with(&self, label: &str, shape: Shape, faults: &Faults) -> Result<Live> {
        let id = self.id(label);
        let several = ["sh", "-c", "sleep 100000 & sleep 100000 & wait"];
        let (args, count) = match shape {
            Shape::Several => (several.as_slice(), 3),
            Shape::Plain | Shape::Paused | Shape::Nested => (["sleep", "100000"].as_slice(), 1),
        };
        self.run(&id, Rootfs::Image, faults, args)?.expect_success("ctr run")?;
        let cgroup = self.cgroup(&id);
        let task = self.tasks()?.remove(&id).with_context(|| format!("{id} is not a task"))?;
        let init = Incarnation::of(task.pid)?.with_context(|| format!("init of {id} is gone"))?;
        wait_until(&format!("{count} processes in {id}"), LIMIT, || {
            Ok(self.node().cgroups().members(&cgroup)?.len() == count)
        })?;
        match shape {
            Shape::Plain | Shape::Several => {}
            Shape::Paused => {
                self.ctr(&["task", "pause", &id])?.expect_success("ctr task pause")?;
            }
            Shape::Nested => self.nest(&cgroup)?,
        }
        let live = Live { id, shape, init, cgroup };
        wait_for(&format!("{} as {shape:?}", live.id), LIMIT, || {
            Ok(live.still_alive(self)?.then_some(live.clone()))
        })
    }

    /// Moves all processes of a container into a child cgroup named `init`, as a nested service manager does.
    pub(crate) fn nest(&self, cgroup: &str) -> Result<()> {
        let cgroups = self.node().cgroups();
        let members = cgroups.members(cgroup)?;
        ensure!(!members.is_empty(), "nothing to move in {cgroup}");
        cgroups.enter(&format!("{cgroup}/init"), &members)
    }
}
