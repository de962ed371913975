//! Processes as read from `/proc`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ident::{ContainerId, Namespace, ProcessKey, Tgid, exact};

/// Scheduler state, from field 3 of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// R
    Running,
    /// S
    Sleeping,
    /// D: also what a task frozen by the v1 freezer shows.
    Uninterruptible,
    /// T or t
    Stopped,
    /// Z: the thread group leader has exited; other threads may live.
    Zombie,
    /// X, x
    Dead,
    /// Anything else (I, P).
    Other,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFact {
    /// Which incarnation.
    pub key: ProcessKey,
    /// Its parent's number at the time of reading; `None` for 0.
    pub parent: Option<Tgid>,
    /// `comm`, chosen by the process itself: a hint, never evidence.
    pub comm: String,
    /// Scheduler state.
    pub state: ProcessState,
    /// Target of `/proc/PID/exe`; `None` for kernel threads, zombies and when not permitted.
    #[serde(with = "exact::optional")]
    pub exe: Option<PathBuf>,
    /// Argument vector, lossily decoded; empty for kernel threads and zombies.
    pub argv: Vec<String>,
    /// A kernel thread (`PF_KTHREAD` in field 9 of `/proc/PID/stat`).
    pub kernel_thread: bool,
}

/// A file by identity, whatever it is called in whichever mount namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// `st_dev`
    pub device: u64,
    /// `st_ino`
    pub inode: u64,
}

/// What a process of a container runtime is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeRole {
    /// A shim that serves a group of tasks: `-namespace NS -id ID -address SOCKET`.
    Shim {
        /// containerd namespace.
        namespace: Namespace,
        /// Id of the first container of the group.
        id: ContainerId,
        /// gRPC address of the containerd it belongs to.
        address: String,
    },
    /// A process whose argv holds a runtime's verb (`create`, `start`, `delete`, `run`, `kill`, `exec`, ...):
    /// `runc create`, `containerd-shim-runc-v2 .. start`, `ctr run`. Its words tell which container.
    Command {
        /// The verb.
        verb: String,
    },
}

/// A process of a container runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeProcess {
    /// The process.
    pub process: ProcessFact,
    /// What it is doing.
    pub role: RuntimeRole,
}

// === impl RuntimeProcess ===

impl RuntimeProcess {
    /// True if one word of the argv is exactly this id.
    pub fn names(&self, id: &ContainerId) -> bool {
        self.process.argv.iter().any(|word| word == id.as_str())
    }
}
