//! What can go wrong while recording.

use std::io;
use std::path::PathBuf;

use super::walk::Fault;

/// Why something was not recorded. Whoever wants to act takes every one of these as the veto
/// `audit_unavailable`.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file, its neighbour `.torn` or its directory could not be opened; a symbolic link is ELOOP.
    #[error("cannot open audit file {path:?}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A device, FIFO or directory is in the file's place.
    #[error("audit file {path:?} is not a regular file")]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes to this file.
    #[error("audit file {path:?} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// `flock(2)` failed for another reason than a second writer.
    #[error("cannot lock audit file {path:?}")]
    Lock {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// What is already in the file could not be read.
    #[error("cannot read audit file {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file was altered or damaged before its last line. It is left as it is: a person decides.
    #[error("audit file {path:?} is broken at line {line}; move it aside to start a new one")]
    Broken {
        /// The file.
        path: PathBuf,
        /// The first bad line, counted from 1.
        line: u64,
        /// What is wrong with it.
        #[source]
        source: Fault,
    },
    /// The torn last line could not be moved aside.
    #[error("cannot move the torn end of audit file {path:?} aside")]
    MoveAside {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The record cannot be expressed in JSON.
    #[error("cannot encode a record for audit file {path:?}")]
    Encode {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The record is longer than a reader would accept.
    #[error("record of {bytes} bytes is too long for audit file {path:?}")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The record was not written, or only in part.
    #[error("cannot write to audit file {path:?}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The record was written, and nobody knows whether it reached the disk.
    #[error("cannot make audit file {path:?} durable")]
    Sync {
        /// The file or its directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An earlier failure left the end of the file in doubt.
    #[error("audit file {path:?} failed earlier and must be opened again")]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
}

// === impl AuditError ===

impl AuditError {
    /// True if nothing reached the file: the next record can be written.
    pub const fn leaves_the_file_sound(&self) -> bool {
        match self {
            Self::Encode { .. } | Self::TooLong { .. } => true,
            Self::Open { .. }
            | Self::NotRegular { .. }
            | Self::InUse { .. }
            | Self::Lock { .. }
            | Self::Read { .. }
            | Self::Broken { .. }
            | Self::MoveAside { .. }
            | Self::Write { .. }
            | Self::Sync { .. }
            | Self::Poisoned { .. } => false,
        }
    }
}
