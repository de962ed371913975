//! One mounted hierarchy: from a path to an open cgroup.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, fstatfs, major, minor, open, openat2};
use rustix::io::{Errno, retry_on_intr};

use super::dir::CgroupDir;
use super::error::{CgroupfsError, answer};
use crate::fact::Controllers;
use crate::ident::{CgroupId, CgroupPath, CgroupRef, Hierarchy, Lookup};
use crate::kernel::{MountEntry, chain};

/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const MAGIC: [u64; 2] = [0x0027_e0eb, 0x6367_7270];
/// `openat2` gives EAGAIN when a rename anywhere races with a walk that must stay beneath a directory.
const RENAME_RACES: u32 = 16;

/// A hierarchy and where it is mounted.
#[derive(Debug)]
pub struct HierarchyMount {
    hierarchy: Hierarchy,
    controllers: Controllers,
    name: String,
    path: PathBuf,
    root: OwnedFd,
}

/// What is at a path where a known cgroup was.
#[derive(Debug)]
pub enum Reopened {
    /// The known cgroup.
    Same(CgroupDir),
    /// Nothing.
    Gone,
    /// Another cgroup has this path now: the known one is gone, and this one is none of our business.
    OtherCgroup(CgroupRef),
    /// No answer; the text says why.
    Unavailable(String),
}

// === impl HierarchyMount ===

impl HierarchyMount {
    /// Opens the root of a mount; `None` if the path leads to another mount, which then hides this one.
    pub(super) fn open_root(
        hierarchy: Hierarchy,
        controllers: Controllers,
        name: String,
        mount: &MountEntry,
    ) -> Result<Option<Self>, CgroupfsError> {
        let path = mount.target.clone();
        let failed = |source| CgroupfsError::OpenRoot { path: path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = match retry_on_intr(|| open(&path, flags, Mode::empty())) {
            Ok(root) => root,
            // A mount point that cannot be reached is below another mount.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let device = fstat(&root).map_err(failed)?.st_dev;
        let magic = fstatfs(&root).map_err(failed)?.f_type;
        let ours = (major(device), minor(device)) == mount.device
            && u64::try_from(magic).is_ok_and(|magic| MAGIC.contains(&magic));
        Ok(ours.then_some(Self { hierarchy, controllers, name, path, root }))
    }

    /// Its number, the first column of `/proc/PID/cgroup`.
    pub const fn hierarchy(&self) -> Hierarchy {
        self.hierarchy
    }

    /// What it is for.
    pub const fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// As in `/proc/PID/cgroup`: `freezer`, `cpu,cpuacct`, `name=systemd`; empty for v2.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a cgroup by path.
    pub fn open(&self, path: &CgroupPath) -> Lookup<CgroupDir> {
        answer(self.open_dir(path))
    }

    /// Opens the path and says whether the known cgroup is still there: after rmdir and mkdir it is another.
    pub fn reopen(&self, path: &CgroupPath, known: CgroupRef) -> Reopened {
        match self.open_dir(path) {
            Ok(dir) if dir.cgroup() == known => Reopened::Same(dir),
            Ok(dir) => Reopened::OtherCgroup(dir.cgroup()),
            Err(error) if error.is_gone() => Reopened::Gone,
            Err(error) => Reopened::Unavailable(chain(&error)),
        }
    }

    pub(super) fn open_dir(&self, path: &CgroupPath) -> Result<CgroupDir, CgroupfsError> {
        let opened = open_beneath(self.root.as_fd(), path.relative())
            .and_then(|fd| fstat(&fd).map(|stat| (fd, CgroupId(stat.st_ino))));
        let (fd, id) = opened.map_err(|source| CgroupfsError::Open { path: path.clone(), source })?;
        let cgroup = CgroupRef { hierarchy: self.hierarchy, id };
        Ok(CgroupDir::new(fd, cgroup, path.clone(), self.controllers))
    }
}

/// Opens a directory that is in the same mount, below the given one, and reached without symbolic links.
pub(super) fn open_beneath(dir: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let mut races = 0;
    loop {
        match retry_on_intr(|| openat2(dir, path, flags, Mode::empty(), resolve)) {
            Err(Errno::AGAIN) if races < RENAME_RACES => races = u32::saturating_add(races, 1),
            result => return result,
        }
    }
}
