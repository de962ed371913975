//! Directories of a runtime, held open, with bounded reads of the files in them.
//!
//! # Invariants
//! - Only the outermost directory, which the operator names, may be or contain a symbolic link.
//! - A read never blocks and never exceeds its limit: what is no regular file (bundles hold a FIFO) is refused.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::reason;
use crate::fact::FileId;
use crate::ident::Lookup;

/// An open directory and the path it was opened by.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a directory or a file in it could not be read. Names are shown escaped: they may hold control bytes.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    #[error("open {path:?}")]
    Open { path: PathBuf, source: Errno },
    #[error("list {path:?}")]
    List { path: PathBuf, source: Errno },
    #[error("read {path:?}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path:?} is no regular file")]
    Kind { path: PathBuf },
    #[error("{path:?} is larger than {limit} bytes")]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{path:?} was replaced while it was read")]
    Replaced { path: PathBuf },
}

// === impl Directory ===

impl Directory {
    const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);

    /// Opens a directory that the operator named; symbolic links are followed (`/var/run`).
    pub(super) fn open(path: &Path) -> Result<Self, DirectoryError> {
        match openat(CWD, path, Self::FLAGS, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: path.to_owned() }),
            Err(source) => Err(DirectoryError::Open { path: path.to_owned(), source }),
        }
    }

    /// Opens a directory in this one. The name is one component: a checked id or what [`Self::names`] gave.
    pub(super) fn child(&self, name: &str) -> Result<Self, DirectoryError> {
        let path = self.path.join(name);
        match openat(&self.fd, name, Self::FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(source) => Err(DirectoryError::Open { path, source }),
        }
    }

    /// Names of the entries, in no order, without `.` and `..`.
    pub(super) fn names(&self) -> Result<Vec<OsString>, DirectoryError> {
        let failed = |source| DirectoryError::List { path: self.path.clone(), source };
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// The content of a regular file of at most `limit` bytes.
    pub(super) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, DirectoryError> {
        let path = self.path.join(name);
        // NONBLOCK: opening a FIFO would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(source) => return Err(DirectoryError::Open { path, source }),
        };
        match fstat(&fd) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
            Ok(_) => return Err(DirectoryError::Kind { path }),
            Err(source) => return Err(DirectoryError::Open { path, source }),
        }
        let mut content = Vec::new();
        match File::from(fd).take(limit.saturating_add(1)).read_to_end(&mut content) {
            Ok(read) if u64::try_from(read).is_ok_and(|read| read <= limit) => Ok(content),
            Ok(_) => Err(DirectoryError::TooLarge { path, limit }),
            Err(source) => Err(DirectoryError::Read { path, source }),
        }
    }

    /// Checks that `name` in this directory is still the directory that `child` holds.
    ///
    /// containerd deletes a bundle by renaming it to a hidden name and then emptying it
    /// (`core/runtime/v2/bundle.go:atomicDelete`): without this check, a bundle read in that moment would look
    /// like one that never had those files.
    pub(super) fn still_holds(&self, name: &str, child: &Self) -> Result<(), DirectoryError> {
        let path = || child.path.clone();
        let now = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|source| DirectoryError::Open { path: path(), source })?;
        let held = fstat(&child.fd).map_err(|source| DirectoryError::Open { path: path(), source })?;
        let same = (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino);
        if same { Ok(()) } else { Err(DirectoryError::Replaced { path: path() }) }
    }

    /// Which directory it is, whatever its name is now.
    pub(super) fn id(&self) -> Result<FileId, DirectoryError> {
        match fstat(&self.fd) {
            Ok(stat) => Ok(FileId { device: stat.st_dev, inode: stat.st_ino }),
            Err(source) => Err(DirectoryError::Open { path: self.path.clone(), source }),
        }
    }

    /// Where it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

// === impl DirectoryError ===

impl DirectoryError {
    /// True only if the kernel said that the name does not exist.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Open { source, .. } if *source == Errno::NOENT)
    }
}

/// ENOENT as absence, every other failure as no answer.
pub(super) fn lookup<T>(result: Result<T, DirectoryError>) -> Lookup<T> {
    match result {
        Ok(value) => Lookup::Found(value),
        Err(error) if error.is_gone() => Lookup::NotFound,
        Err(error) => Lookup::Unavailable(reason(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn holding(content: &[u8]) -> (tempfile::TempDir, Directory) {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("file"))
            .and_then(|mut f| io::Write::write_all(&mut f, content))
            .unwrap();
        let open = Directory::open(dir.path()).unwrap();
        (dir, open)
    }

    #[test]
    fn a_file_at_the_limit_is_read_and_one_byte_more_is_refused() {
        let (_dir, open) = holding(b"12345");
        assert_eq!(lookup(open.read("file", 5)), Lookup::Found(b"12345".to_vec()));
        let refused = lookup(open.read("file", 4));
        assert!(refused.unavailable().is_some_and(|why| why.contains("larger than 4")), "{refused:?}");
    }

    #[test]
    fn only_enoent_is_absence() {
        let (dir, open) = holding(b"");
        symlink("/proc/self/status", dir.path().join("link")).unwrap();
        symlink("/", dir.path().join("root")).unwrap();
        assert_eq!(lookup(open.read("none", 1)), Lookup::NotFound);
        for name in ["link", "."] {
            assert!(lookup(open.read(name, 1 << 20)).unavailable().is_some(), "{name}");
        }
        for name in ["root", "link", "file"] {
            assert!(lookup(open.child(name)).unavailable().is_some(), "{name}");
        }
    }

    #[test]
    fn a_fifo_is_refused_without_waiting_for_its_writer() {
        let (dir, open) = holding(b"");
        nix::unistd::mkfifo(&dir.path().join("log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = lookup(open.read("log", 16));
        assert!(refused.unavailable().is_some_and(|why| why.contains("no regular file")), "{refused:?}");
    }

    #[test]
    fn a_directory_renamed_away_or_replaced_is_noticed() {
        let (dir, open) = holding(b"");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("b")).unwrap();
        let child = open.child("b").unwrap();
        assert_eq!(lookup(open.still_holds("b", &child)), Lookup::Found(()));
        std::fs::rename(at("b"), at(".b")).unwrap();
        assert_eq!(lookup(open.still_holds("b", &child)), Lookup::NotFound);
        std::fs::create_dir(at("b")).unwrap();
        assert!(lookup(open.still_holds("b", &child)).unavailable().is_some());
    }
}
