//! Processes as `/proc` and pidfds show them, one incarnation at a time.
//!
//! [`start_of`], [`read`], [`all`], [`cgroup_of`] and [`alive`] answer questions about numbers; [`PidHandle`] holds
//! an incarnation. [`runtime_processes`] and [`ancestors`] pick from what [`all`] returned and read nothing;
//! [`invocation()`] reads one argument vector.
//! Nothing here signals: `reap` does, through a [`PidHandle`].
//!
//! # Invariants
//! - A number is never taken for a process: whatever is read of one process is read below one held `/proc/PID`
//!   directory, which fails with ENOENT or ESRCH once that process has been reaped (`fs/proc/base.c`).
//! - "No such process" needs `pidfd_open` to say ESRCH as well: with `hidepid`, ENOENT below `/proc/PID` may only
//!   mean that we may not look.
//! - What a process says about itself (`comm`, argv) is bounded, decoded lossily and only a hint.

mod ancestry;
mod descriptors;
mod dir;
mod error;
mod handle;
mod invocation;
mod membership;
mod process;
mod runtime;

pub use ancestry::{Read, ancestors};
pub use descriptors::sockets;
pub use error::ProcfsError;
pub use handle::{Candidate, Member, PidHandle};
pub use invocation::invocation;
pub use membership::{cgroup_of, cgroups_of};
pub use process::{alive, all, exe_file, exe_on_overlay, is_root, read, start_of, wait_channel};
pub use runtime::{all_runtime_processes, runtime_processes};
