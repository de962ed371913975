//! Names in the object.

/// Hash: cgroups whose events are reported, inherited by their children.
pub const TRACKED: &str = "TRACKED";
/// Hash: processes whose life is reported.
pub const WATCH: &str = "WATCH";
/// Array: which numbers `WATCH` surely has not; see [`FILTER_SLOTS`](super::FILTER_SLOTS).
pub const FILTER: &str = "FILTER";
/// Ring: lifecycle of cgroups. Apart from the other, so that a fork storm cannot push these out.
pub const CGROUP_RING: &str = "CGROUP_RING";
/// Ring: lifecycle of processes.
pub const PROCESS_RING: &str = "PROCESS_RING";
/// Per-CPU array of losses; see [`Counter`](super::Counter).
pub const LOST: &str = "LOST";
/// Hash: process and thread to the inode of the directory that the thread may remove; see [`RMDIR_GUARD`].
pub const ARMED: &str = "ARMED";
/// LSM program, and the hook it attaches to: refuses a thread in `ARMED` the rmdir of anything else. Optional: most
/// kernels call no LSM programs.
pub const RMDIR_GUARD: &str = "inode_rmdir";
/// Global: thread group id of the process that loads the object, for the self checks.
pub const SELF_TGID: &str = "SELF_TGID";

/// A program and the tracepoint it attaches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name in the object.
    pub name: &'static str,
    /// Directory of the tracepoint in tracefs.
    pub category: &'static str,
    /// The tracepoint.
    pub tracepoint: &'static str,
}

/// Typed: reports what it reads about its loader whenever that starts a thread; unloaded after the check.
pub const SELF_CHECK: Program = Program::new("self_check", "sched", "sched_process_fork");

/// The same for the classic programs.
pub const CLASSIC_SELF_CHECK: Program = Program::new("self_check_classic", "task", "task_newtask");

/// The typed programs that stay attached, in the order of attachment: first what fills the maps, then the rest.
pub const PROGRAMS: [Program; 8] = [
    Program::new("cgroup_mkdir", "cgroup", "cgroup_mkdir"),
    Program::new("cgroup_rmdir", "cgroup", "cgroup_rmdir"),
    Program::new("cgroup_notify_populated", "cgroup", "cgroup_notify_populated"),
    Program::new("cgroup_notify_frozen", "cgroup", "cgroup_notify_frozen"),
    Program::new("sched_process_exit", "sched", "sched_process_exit"),
    Program::new("sched_process_fork", "sched", "sched_process_fork"),
    Program::new("sched_process_exec", "sched", "sched_process_exec"),
    Program::new("signal_generate", "signal", "signal_generate"),
];

/// The classic ones in the same order, but for signals.
pub const CLASSIC_PROGRAMS: [Program; 7] = [
    Program::new("cgroup_mkdir_classic", "cgroup", "cgroup_mkdir"),
    Program::new("cgroup_rmdir_classic", "cgroup", "cgroup_rmdir"),
    Program::new("cgroup_notify_populated_classic", "cgroup", "cgroup_notify_populated"),
    Program::new("cgroup_notify_frozen_classic", "cgroup", "cgroup_notify_frozen"),
    Program::new("sched_process_exit_classic", "sched", "sched_process_exit"),
    Program::new("task_newtask_classic", "task", "task_newtask"),
    Program::new("sched_process_exec_classic", "sched", "sched_process_exec"),
];

// === impl Program ===

impl Program {
    const fn new(name: &'static str, category: &'static str, tracepoint: &'static str) -> Self {
        Self { name, category, tracepoint }
    }
}
