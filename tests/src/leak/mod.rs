//! Leaks made by real crashes of real runtime processes.
//!
//! Each maker waits until the runtime has ended its own attempts at removal (the client returned, no shim and no
//! runc works for the container, containerd has forgotten the task) and verifies the end state that it promises.

mod create;
mod shim;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::containerd::Containerd;
use crate::process::Incarnation;
use crate::wait::wait_until;

const SETTLED: Duration = Duration::from_secs(30);

/// What is left, in the product's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeakKind {
    /// A cgroup made by a `runc create` that died before `state.json`.
    HalfCreated,
    /// Processes that outlived shim and task.
    Orphaned,
    /// Directories without processes.
    Empty,
}

/// How a leak is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// SIGKILL to `runc create` with the new cgroup frozen. Nothing pins the rootfs: containerd removes the bundle.
    FrozenCreate,
    /// The same with a mounted rootfs, which the leaked init pins: the bundle stays, and three of them make a
    /// start of containerd 1.6 take 15 s. Takes 10 s to make.
    FrozenCreateBusyRootfs,
    /// SIGKILL to `runc create`, nothing frozen: the init ends by itself, the directories stay.
    ThawedCreate,
    /// SIGKILL to the shim of a container without a PID namespace, to the `runc delete` that follows, and to the
    /// init: its children live on.
    OrphanedChildren,
    /// The same for a container with nested cgroups and a PID namespace: nothing lives on, the tree stays.
    NestedTree,
}

/// A leak as it was when its maker was done.
#[derive(Clone, Debug)]
pub struct Leak {
    /// The container's id.
    pub id: String,
    /// Its containerd namespace.
    pub namespace: String,
    /// How it was made.
    pub crash: Crash,
    /// What is left.
    pub kind: LeakKind,
    /// Its cgroup's path from the root of each hierarchy.
    pub cgroup: String,
    /// Processes in it.
    pub members: BTreeSet<Incarnation>,
    /// All its directories, nested ones included, in every hierarchy, parents first.
    pub dirs: Vec<PathBuf>,
    /// Where its bundle is or was.
    pub bundle: PathBuf,
}

// === impl LeakKind ===

impl LeakKind {
    /// The name the product uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HalfCreated => "cgroup.half_created",
            Self::Orphaned => "cgroup.orphaned",
            Self::Empty => "cgroup.empty",
        }
    }
}

// === impl Crash ===

impl Crash {
    /// All ways to leak.
    pub const ALL: [Self; 5] = [
        Self::FrozenCreate,
        Self::FrozenCreateBusyRootfs,
        Self::ThawedCreate,
        Self::OrphanedChildren,
        Self::NestedTree,
    ];

    /// What it leaves.
    pub const fn kind(self) -> LeakKind {
        match self {
            Self::FrozenCreate | Self::FrozenCreateBusyRootfs => LeakKind::HalfCreated,
            Self::OrphanedChildren => LeakKind::Orphaned,
            Self::ThawedCreate | Self::NestedTree => LeakKind::Empty,
        }
    }
}

// === impl Leak ===

impl Leak {
    /// Directories that still exist.
    pub fn dirs_left(&self) -> Vec<PathBuf> {
        self.dirs.iter().filter(|dir| dir.exists()).cloned().collect()
    }

    /// Processes that still live.
    pub fn members_left(&self) -> Result<Vec<Incarnation>> {
        let mut left = Vec::new();
        for member in &self.members {
            left.extend(member.is_alive()?.then_some(*member));
        }
        Ok(left)
    }

    /// True once no directory is left in any hierarchy and no process lives.
    pub fn is_gone(&self) -> Result<bool> {
        Ok(self.dirs_left().is_empty() && self.members_left()?.is_empty())
    }
}

// === impl Containerd ===

impl Containerd {
    /// Makes a leak.
    pub fn crash(&self, label: &str, crash: Crash) -> Result<Leak> {
        let id = self.id(label);
        match crash {
            Crash::FrozenCreate | Crash::FrozenCreateBusyRootfs | Crash::ThawedCreate => {
                self.crash_create(&id, crash)?;
            }
            Crash::OrphanedChildren | Crash::NestedTree => self.crash_shim(label, crash)?,
        }
        self.settled(&id)?;
        let cgroup = self.cgroup(&id);
        let cgroups = self.node().cgroups();
        let leak = Leak {
            namespace: self.namespace().to_owned(),
            crash,
            kind: crash.kind(),
            members: cgroups.members(&cgroup)?,
            dirs: cgroups.tree(&cgroup)?,
            bundle: self.bundle(&id),
            id,
            cgroup,
        };
        self.verify(&leak)?;
        Ok(leak)
    }

    /// Waits until nothing of the runtime works for the container any more.
    fn settled(&self, id: &str) -> Result<()> {
        wait_until(&format!("the runtime's own removal of {id}"), SETTLED, || {
            ensure!(self.is_running()?, "containerd was ended meanwhile");
            Ok(self.runtime_processes(id)?.is_empty())
        })?;
        ensure!(!self.tasks()?.contains_key(id), "containerd still has a task {id}");
        Ok(())
    }

    fn verify(&self, leak: &Leak) -> Result<()> {
        let Leak { id, crash, .. } = leak;
        let cgroups = self.node().cgroups();
        let in_all = cgroups.dirs(&leak.cgroup).len() == cgroups.hierarchies().len();
        ensure!(in_all, "{id}: not in every hierarchy: {:?}", leak.dirs);
        let half_created = matches!(crash, Crash::FrozenCreate | Crash::FrozenCreateBusyRootfs);
        ensure!(leak.members.is_empty() == (leak.kind == LeakKind::Empty), "{id}: {:?}", leak.members);
        ensure!(cgroups.is_frozen(&leak.cgroup)? == half_created, "{id}: frozen or not, not as promised");
        let inits = leak.members.iter().filter(|member| member.comm().starts_with("runc:[2:INIT"));
        ensure!(inits.count() == usize::from(half_created), "{id}: an init that waits, or none");
        ensure!(
            leak.bundle.exists() == (*crash == Crash::FrozenCreateBusyRootfs),
            "{id}: bundle there or not, not as promised"
        );
        let created = matches!(crash, Crash::OrphanedChildren | Crash::NestedTree);
        let has_state = self.runc_state(id).join("state.json").exists();
        ensure!(has_state == created, "{id}: state.json there or not, not as promised");
        Ok(())
    }
}
