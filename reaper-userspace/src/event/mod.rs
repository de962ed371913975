//! Records of the rings, as events.
//!
//! Decoding is total: any bytes give an [`Event`] or a [`DecodeError`]. An event is a hint: it says when and where
//! to look, and proves nothing about the present.

mod comm;
mod decode;

pub use comm::Comm;
pub use decode::DecodeError;

use crate::ident::{CgroupId, CgroupRef, ProcessKey, Tgid};
use crate::time::BootTime;

/// Something the kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: BootTime,
    /// What.
    pub what: Occurrence,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// A cgroup was made below a tracked one, and is tracked from now on.
    CgroupMade {
        /// The new cgroup.
        cgroup: CgroupRef,
        /// The cgroup it was made in, of the same hierarchy.
        parent: CgroupId,
        /// Depth; the root is 0.
        level: u32,
        /// The process that made it: the runtime itself, or systemd where that is the driver.
        maker: Actor,
    },
    /// A tracked cgroup was removed.
    CgroupRemoved {
        /// The removed cgroup.
        cgroup: CgroupRef,
        /// Depth; the root is 0.
        level: u32,
        /// The process that removed it.
        remover: Actor,
    },
    /// The first task entered a tracked cgroup's subtree, or the last one left.
    CgroupPopulated {
        /// The cgroup.
        cgroup: CgroupRef,
        /// Whether the subtree has a task now.
        populated: bool,
    },
    /// A tracked v2 cgroup became frozen or thawed. An empty one whose freeze is set becomes frozen too.
    CgroupFrozen {
        /// The cgroup.
        cgroup: CgroupRef,
        /// Whether it is frozen now.
        frozen: bool,
    },
    /// A watched process made a process, which is watched from now on.
    Forked {
        /// The process that called; with `CLONE_PARENT` not the parent.
        creator: ProcessKey,
        /// The new process.
        child: ProcessKey,
        /// When the new process started, to the nanosecond: tells incarnations within one tick apart.
        born: BootTime,
        /// The creator's name.
        comm: Comm,
    },
    /// A watched process became another program, or any process became one named like a shim or runtime.
    Execed {
        /// The process.
        process: ProcessKey,
        /// When it started, to the nanosecond.
        born: BootTime,
        /// Its new name.
        comm: Comm,
    },
    /// The last thread of a watched process is about to leave its cgroup. Its number is not free yet.
    Exited {
        /// The process.
        process: ProcessKey,
        /// When it started, to the nanosecond.
        born: BootTime,
        /// Wait status of the last thread: the process's own, unless its threads ended one by one.
        status: i32,
        /// The last thread's name.
        comm: Comm,
    },
}

/// Who did something to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Its number; `None` for a kernel thread of number 0.
    pub tgid: Option<Tgid>,
    /// Its name.
    pub comm: Comm,
}
