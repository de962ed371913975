//! The write half: the three effects that cgroupfs has. Only `reap` calls them.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::{Errno, retry_on_intr, write};

use super::dir::CgroupDir;
use super::error::CgroupfsError;
use crate::fact::Controllers;
use crate::ident::{CgroupId, CgroupPath, CgroupRef};

/// What can be done to a cgroup, all of it through a held directory.
///
/// Each call fails with [`CgroupfsError::is_gone`] when the cgroup is gone, which a reaper counts as success.
pub trait CgroupControl {
    /// Asks the freezer to stop the subtree; [`CgroupDir::freeze_state`] tells when it has.
    fn freeze(&self) -> Result<(), CgroupfsError>;

    /// Takes back our own freeze. Without effect while an enclosing cgroup is frozen, which the kernel does not
    /// report: ask [`CgroupDir::frozen_from_above`].
    fn thaw(&self) -> Result<(), CgroupfsError>;

    /// Looks whether the child with this name still is this cgroup; what it returns can remove it.
    fn doomed<'a>(&'a self, name: &'a OsStr, known: CgroupRef) -> Result<Child<'a>, CgroupfsError>;
}

/// What has a name that was a known cgroup's.
#[derive(Debug)]
pub enum Child<'a> {
    /// The known cgroup.
    Same(Doomed<'a>),
    /// Nobody.
    Gone,
    /// Another cgroup, which is none of our business.
    Other(CgroupRef),
}

/// A cgroup that had its name an instant ago.
#[derive(Debug)]
#[must_use = "looking removes nothing"]
pub struct Doomed<'a> {
    parent: &'a CgroupDir,
    name: &'a OsStr,
    path: CgroupPath,
}

impl CgroupControl for CgroupDir {
    fn freeze(&self) -> Result<(), CgroupfsError> {
        self.set_freezer("FROZEN", "1")
    }

    fn thaw(&self) -> Result<(), CgroupfsError> {
        self.set_freezer("THAWED", "0")
    }

    fn doomed<'a>(&'a self, name: &'a OsStr, known: CgroupRef) -> Result<Child<'a>, CgroupfsError> {
        let path = self
            .path()
            .child(name)
            .map_err(|source| CgroupfsError::ChildName { path: self.path().clone(), source })?;
        let found = match retry_on_intr(|| statat(self.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => CgroupRef { hierarchy: self.cgroup().hierarchy, id: CgroupId(stat.st_ino) },
            Err(Errno::NOENT | Errno::NODEV) => return Ok(Child::Gone),
            Err(source) => return Err(CgroupfsError::Remove { path, source }),
        };
        let same = found == known;
        Ok(if same { Child::Same(Doomed { parent: self, name, path }) } else { Child::Other(found) })
    }
}

// === impl Doomed ===

impl Doomed<'_> {
    /// Removes what has the name. False if nobody has it any more.
    ///
    /// `is_busy` while it has tasks or children: later. rmdir is by name, so since the look the name can have changed
    /// hands; the kernel still refuses every populated successor, and an empty one is at most removed an instant after
    /// it was made. May block on kernels from 7.0 on: call it on a disposable thread.
    #[expect(clippy::disallowed_methods, reason = "the removal that reap plans, after its inode check")]
    pub fn remove(self) -> Result<bool, CgroupfsError> {
        match retry_on_intr(|| unlinkat(self.parent.as_fd(), self.name, AtFlags::REMOVEDIR)) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NODEV) => Ok(false),
            Err(source) => Err(CgroupfsError::Remove { path: self.path, source }),
        }
    }
}

// === impl CgroupDir ===

impl CgroupDir {
    fn set_freezer(&self, v1: &'static str, v2: &'static str) -> Result<(), CgroupfsError> {
        match self.controllers() {
            Controllers::Freezer => self.write("freezer.state", v1),
            Controllers::Unified => self.write("cgroup.freeze", v2),
            Controllers::Other => Err(CgroupfsError::NoFreezer { path: self.path().clone() }),
        }
    }

    fn write(&self, file: &'static str, value: &'static str) -> Result<(), CgroupfsError> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // cgroupfs takes a value in one write or not at all.
        retry_on_intr(|| openat(self.as_fd(), file, flags, Mode::empty()))
            .and_then(|fd| retry_on_intr(|| write(&fd, value.as_bytes())))
            .map(|_written| ())
            .map_err(|source| {
                self.explain(CgroupfsError::Write { file, value, path: self.path().clone(), source })
            })
    }
}
