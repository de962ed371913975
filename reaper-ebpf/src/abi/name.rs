//! Names in the object. Programs are named after the tracepoint they attach to.

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
/// Global: thread group id of the process that loads the object, for [`SELF_CHECK`].
pub const SELF_TGID: &str = "SELF_TGID";
/// Program that reports what it reads about its loader whenever that starts a thread; detached after the check.
pub const SELF_CHECK: &str = "self_check";
/// The tracepoint that [`SELF_CHECK`] attaches to.
pub const SELF_CHECK_AT: &str = "sched_process_fork";
/// The programs that stay attached, in the order of attachment: first what fills the maps, then the rest.
pub const PROGRAMS: [&str; 7] = [
    "cgroup_mkdir",
    "cgroup_rmdir",
    "cgroup_notify_populated",
    "cgroup_notify_frozen",
    "sched_process_exit",
    "sched_process_fork",
    "sched_process_exec",
];
