//! What can fail in procfs.

use std::io;

use rustix::io::Errno;

use crate::ident::{CgroupPathError, Lookup, Tgid};
use crate::kernel::{MembershipError, ReadError, chain};

/// One failed question about a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcfsError {
    /// There is no such process; the kernel said so.
    #[error("no process {tgid}")]
    Absent {
        /// Its number.
        tgid: Tgid,
    },
    /// There is one, and `/proc` does not show it to us.
    #[error("process {tgid} exists but is hidden in /proc")]
    Hidden {
        /// Its number.
        tgid: Tgid,
    },
    /// `/proc` shows not even process 1, so its list of processes is incomplete.
    #[error("/proc does not list process 1: some processes are hidden")]
    HidesInit,
    /// `/proc` could not be listed.
    #[error("list /proc")]
    List(#[source] io::Error),
    /// `/proc/PID` could not be opened.
    #[error("open /proc/{tgid}")]
    Open {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: Errno,
    },
    /// Its descriptors could not be listed.
    #[error("list the descriptors of process {tgid}")]
    Descriptors {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: Errno,
    },
    /// A file of a process could not be read.
    #[error("read {file} of process {tgid}")]
    Read {
        /// Name of the file.
        file: &'static str,
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: ReadError,
    },
    /// `/proc/PID/stat` is not what kernels write.
    #[error("parse stat of process {tgid}")]
    Stat {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: ::procfs::ProcError,
    },
    /// `/proc/PID/cgroup` is not what kernels write.
    #[error("parse cgroup of process {tgid}")]
    Memberships {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: MembershipError,
    },
    /// The process is in a cgroup that cannot be named from here.
    #[error("name the cgroup of process {tgid}")]
    CgroupPath {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: CgroupPathError,
    },
    /// No pidfd could be had.
    #[error("open a pidfd for process {tgid}")]
    Pidfd {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: Errno,
    },
    /// The state of a pidfd could not be read.
    #[error("read the fdinfo of the pidfd of process {tgid}")]
    Fdinfo {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: ReadError,
    },
    /// A pidfd's fdinfo names no process of this PID namespace, neither a live nor a reaped one.
    #[error("the pidfd of process {tgid} is not of this PID namespace")]
    ForeignPidfd {
        /// The process.
        tgid: Tgid,
    },
    /// Waiting for the end of a process failed.
    #[error("wait for the end of process {tgid}")]
    Wait {
        /// The process.
        tgid: Tgid,
        /// Cause.
        source: Errno,
    },
}

/// Turns a reader's result into an answer: only [`ProcfsError::Absent`] is absence.
pub(super) fn answer<T>(result: Result<T, ProcfsError>) -> Lookup<T> {
    match result {
        Ok(value) => Lookup::Found(value),
        Err(ProcfsError::Absent { .. }) => Lookup::NotFound,
        Err(error) => Lookup::Unavailable(chain(&error)),
    }
}
