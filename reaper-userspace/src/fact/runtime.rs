//! What containerd, its shims, runc and the bundles on disk say.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ident::{CgroupPath, ContainerId, ContainerKey, Lookup, Namespace, ProcessKey, Tgid, exact};
use crate::time::BootTime;

/// Whether a containerd is one the operator asked us to work for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// Configured, or the default address.
    Ours,
    /// Discovered on the node: asked, because it may own the container, never worked for.
    Foreign,
}

/// Status of a task, as containerd and shims report it (`api/types/task/task.proto`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Also what containerd says of a create in flight and of a shim that does not answer.
    Unknown,
    /// Created, not started.
    Created,
    /// Running.
    Running,
    /// Exited, not deleted.
    Stopped,
    /// Paused by a user.
    Paused,
    /// About to be paused.
    Pausing,
}

/// The containerd process behind a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFact {
    /// Its incarnation: a restart changes it.
    pub process: ProcessKey,
}

/// A container record of containerd, reduced to what correlation needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// The container.
    pub key: ContainerKey,
    /// The cgroup that its spec names, resolved with its runtime's driver.
    pub cgroup: Lookup<CgroupPath>,
    /// Id of the group (pod sandbox) whose shim serves it; its own id where there is no group.
    pub group: ContainerId,
    /// What its shim was told about the runtime; `NotFound` if nothing, so that it uses its defaults.
    pub runtime: Lookup<RuntimeChoice>,
    /// Its annotation `cgroup-reaper.io/protect` asks that it is never touched.
    #[serde(default)]
    pub protected: bool,
}

/// Where a container's runtime is and keeps its state, as far as its options say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeChoice {
    /// The runtime's binary, if it is not the shim's default.
    pub binary: Option<String>,
    /// The runtime's state directory without the namespace, if it is not the shim's default.
    pub root: Option<PathBuf>,
}

/// How far `runc create` came, read from which files the bundle has (`init.pid` is written last).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateProgress {
    /// No `options.json`: this bundle never ran runc, so it has no cgroup.
    NeverRan,
    /// `options.json` without `init.pid`: create did not finish.
    Started,
    /// `init.pid` is there.
    Finished,
}

/// A bundle directory `STATE/io.containerd.runtime.v2.task/NS/ID`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleFact {
    /// The container it is for.
    pub key: ContainerKey,
    /// The directory.
    #[serde(with = "exact")]
    pub path: PathBuf,
    /// The cgroup that its `config.json` names, resolved with the driver that its `options.json` names.
    pub cgroup: Lookup<CgroupPath>,
    /// Group id from the annotations of its `config.json`; its own id where there is none.
    pub group: Lookup<ContainerId>,
    /// Its annotation `cgroup-reaper.io/protect` asks that it is never touched.
    #[serde(default)]
    pub protected: bool,
    /// How far create came.
    pub progress: Lookup<CreateProgress>,
    /// The number in `init.pid`: stale by nature, evidence only together with a membership.
    pub init_pid: Lookup<Tgid>,
}

/// `state.json` of runc (or `status` of crun) below the runtime's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuncState {
    /// The file.
    #[serde(with = "exact")]
    pub path: PathBuf,
    /// Init as recorded; `None` while a create is under way (runc 1.3.1 to 1.3.4 write -1).
    pub init: Option<ProcessKey>,
    /// Whether exactly that incarnation is alive, not a zombie.
    pub init_alive: Lookup<bool>,
}

/// What one containerd said about one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeAnswer {
    /// gRPC address.
    pub address: String,
    /// Ours or foreign.
    pub ownership: Ownership,
    /// The process that serves it.
    pub server: Lookup<ServerFact>,
    /// `tasks.Get` in the container's namespace.
    pub task: Lookup<TaskStatus>,
    /// `containers.Get` in the container's namespace.
    pub record: Lookup<()>,
    /// The record's annotation `cgroup-reaper.io/protect` asks that it is never touched.
    #[serde(default)]
    pub protected: bool,
    /// Another container of this containerd (any namespace) whose spec names the same cgroup, one above or one
    /// below it.
    pub overlapping: Lookup<Vec<ContainerKey>>,
}

/// What one live shim said about one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimAnswer {
    /// The shim.
    pub process: ProcessKey,
    /// gRPC address of its containerd, from its argv.
    pub containerd: String,
    /// Whether that containerd is ours.
    pub ownership: Ownership,
    /// `State` for the container's id: `NotFound` is the shim's own "container not created".
    pub task: Lookup<TaskStatus>,
}

/// A mount at or below a bundle's rootfs, in the mount namespace of the containerd that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFact {
    /// Mount id in that namespace; the kernel gives it to the next mount as soon as this one is gone.
    pub mount_id: u32,
    /// The id that no other mount of this boot gets; `None` before Linux 6.8 and for a covered mount.
    pub unique_id: Option<u64>,
    /// Mount point in that namespace.
    #[serde(with = "exact")]
    pub target: PathBuf,
    /// A process in that mount namespace.
    pub namespace_of: ProcessKey,
}

/// What a runtime was told to do, by its argument vector: a claim, not a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// `create`, `start`, `delete`, ...
    pub verb: String,
    /// The containerd namespace, where the runtime's root names it.
    pub namespace: Option<Namespace>,
    /// The container.
    pub id: ContainerId,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessEnd {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A runtime's command that the probes followed from its exec to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedCommand {
    /// The process.
    pub process: ProcessKey,
    /// What it was told; `None` if it was gone before that could be read.
    pub invocation: Option<Invocation>,
    /// The shim that started it, where known.
    pub shim: Option<ProcessKey>,
    /// Its exec.
    pub began: BootTime,
    /// Its end.
    pub ended: BootTime,
    /// How.
    pub end: ProcessEnd,
}

// === impl Invocation ===

impl Invocation {
    /// The container, where the namespace is known.
    pub fn container(&self) -> Option<ContainerKey> {
        let namespace = self.namespace.clone()?;
        Some(ContainerKey { namespace, id: self.id.clone() })
    }
}

// === impl ProcessEnd ===

impl ProcessEnd {
    /// From a wait status as the kernel keeps it (`exit_code` of `task_struct`): the signal in the low seven bits,
    /// then the core bit, then the code.
    pub const fn from_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code(status >> 8 & 0xff),
            signal => Self::Signal(signal),
        }
    }

    /// Exit code 0.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
