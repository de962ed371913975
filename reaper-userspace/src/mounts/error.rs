//! What can fail with mounts.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::ident::ProcessKey;
use crate::kernel::{MountinfoError, ReadError};

/// One failed operation on a mount or a mount namespace.
#[derive(Debug, thiserror::Error)]
pub enum MountsError {
    /// A path that cannot be the target of a mount.
    #[error("{path:?} is not an absolute path")]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// A namespace cannot be reached through its process.
    #[error("open the mount namespace of process {process}")]
    Open {
        /// The process.
        process: ProcessKey,
        /// Cause.
        source: Errno,
    },
    /// The number belongs to another process now, or to none.
    #[error("process {process} is gone, and with it the way to its mount namespace")]
    Gone {
        /// The process.
        process: ProcessKey,
    },
    /// Whether the process is the right one could not be found out.
    #[error("identify process {process}: {reason}")]
    Unidentified {
        /// The process.
        process: ProcessKey,
        /// Why not.
        reason: String,
    },
    /// A mount table could not be read.
    #[error("read the mounts of process {process}")]
    Read {
        /// The process in whose namespace they are.
        process: ProcessKey,
        /// Cause.
        source: ReadError,
    },
    /// A mount table is not what kernels write.
    #[error("parse the mounts of process {process}")]
    Parse {
        /// The process in whose namespace they are.
        process: ProcessKey,
        /// Cause.
        source: MountinfoError,
    },
    /// The namespace could not be entered.
    #[error("enter the mount namespace of process {process}")]
    Enter {
        /// The process.
        process: ProcessKey,
        /// Cause.
        source: Errno,
    },
    /// The mount is there and could not be unmounted.
    #[error("unmount {target:?}")]
    Unmount {
        /// Where it is mounted.
        target: PathBuf,
        /// Cause.
        source: Errno,
    },
    /// The thread for an unmount could not be started or watched.
    #[error("start or watch thread {thread} that unmounts {target:?}")]
    Thread {
        /// Where it is mounted.
        target: PathBuf,
        /// Name of the thread.
        thread: String,
        /// Cause.
        source: io::Error,
    },
    /// The thread that unmounts has ended without a result.
    #[error("thread {thread} that unmounts {target:?} has panicked")]
    Panicked {
        /// Where it is mounted.
        target: PathBuf,
        /// Name of the thread.
        thread: String,
    },
    /// The unmount is not done at the deadline. Its thread is left behind and may still do it.
    #[error("thread {thread} still unmounts {target:?} at the deadline and is left behind")]
    Deadline {
        /// Where it is mounted.
        target: PathBuf,
        /// Name of the thread.
        thread: String,
    },
}

// === impl MountsError ===

impl MountsError {
    /// True if the mount is in use: a process has a file open or its working directory in it, or another mount is
    /// below it.
    pub const fn is_busy(&self) -> bool {
        matches!(self, Self::Unmount { source: Errno::BUSY, .. })
    }

    /// True if the deadline passed with the unmount still under way.
    pub const fn is_deadline(&self) -> bool {
        matches!(self, Self::Deadline { .. })
    }
}
