//! Whole, bounded reads of small kernel files.

use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, retry_on_intr};

/// Room for a `stat`, an `fdinfo` or a file of a cgroup.
const SMALL: usize = 1024;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened.
    #[error("open {path:?}")]
    Open {
        /// As given to `openat`.
        path: PathBuf,
        /// What the kernel said.
        source: Errno,
    },
    /// It could be opened but not read.
    #[error("read {path:?}")]
    Read {
        /// As given to `openat`.
        path: PathBuf,
        /// What the kernel said.
        source: Errno,
    },
    /// A part of a list is no list: nothing is returned of a longer file.
    #[error("{path:?} is longer than {limit} bytes")]
    TooLong {
        /// As given to `openat`.
        path: PathBuf,
        /// The bound.
        limit: u64,
    },
}

// === impl ReadError ===

impl ReadError {
    /// The kernel's error number, if it was the kernel that failed.
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { source, .. } | Self::Read { source, .. } => Some(*source),
            Self::TooLong { .. } => None,
        }
    }
}

/// Reads a file below a held directory; a symbolic link in its last component is refused with ELOOP.
pub fn read_at(dir: BorrowedFd<'_>, path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, ReadError> {
    let path = path.as_ref();
    // One byte more than allowed tells "too long" from "just fits".
    let bytes = read_prefix_at(dir, path, limit.saturating_add(1))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
        return Ok(bytes);
    }
    Err(ReadError::TooLong { path: path.to_owned(), limit })
}

/// Reads the first bytes of a file, for text in which a lost end is no lost answer.
pub fn read_prefix_at(dir: BorrowedFd<'_>, path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, ReadError> {
    let path = path.as_ref();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = retry_on_intr(|| openat(dir, path, flags, Mode::empty()))
        .map_err(|source| ReadError::Open { path: path.to_owned(), source })?;
    // Most of these files fit: a smaller buffer would be filled by a call for every few bytes.
    let mut bytes = Vec::with_capacity(SMALL);
    // read_to_end goes on after EINTR.
    File::from(file).take(limit).read_to_end(&mut bytes).map_err(|error| ReadError::Read {
        path: path.to_owned(),
        source: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    Ok(bytes)
}

/// Reads a file by its absolute path, with the rules of [`read_at`].
pub fn read_path(path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, ReadError> {
    read_at(CWD, path, limit)
}

/// An error and all its causes in one line, for [`Lookup::Unavailable`](crate::ident::Lookup::Unavailable).
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_longer_than_the_limit_is_refused_and_not_cut() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file.as_file(), b"12345").unwrap();
        assert_eq!(read_path(file.path(), 5).unwrap(), b"12345");
        assert!(matches!(read_path(file.path(), 4), Err(ReadError::TooLong { limit: 4, .. })));
    }

    #[test]
    fn an_error_tells_object_and_cause_once() {
        let error = read_path("/nonexistent/file", 1).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::NOENT));
        assert_eq!(chain(&error), "open \"/nonexistent/file\": No such file or directory (os error 2)");
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        assert_eq!(read_path(&link, 100).unwrap_err().errno(), Some(Errno::LOOP));
    }
}
