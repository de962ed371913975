//! One open cgroup: everything is read relative to the held directory.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Dir, FileType, fstat, statat};
use rustix::io::{Errno, retry_on_intr};

use super::error::{CgroupfsError, answer};
use super::hierarchy::open_beneath;
#[cfg(doc)]
use super::layout::LayoutWarning;
use super::parse::{self, ListError};
use super::watch::EventsWatch;
use crate::fact::{Controllers, Freeze};
use crate::ident::{CgroupId, CgroupPath, CgroupRef, Lookup, Tgid};
use crate::kernel::{ReadError, read_at};

/// `PID_MAX_LIMIT` numbers of seven digits and a newline.
const LIST_LIMIT: u64 = 32 << 20;
/// All other files are a few lines.
const FILE_LIMIT: u64 = 4096;
/// The file that every cgroup has, in v1 and v2, threaded ones and roots included.
const PROCS: &str = "cgroup.procs";
/// Its own name and `.`; each directory below adds one, also one that is being made and is not listed yet
/// (`fs/kernfs/inode.c:kernfs_refresh_inode`).
const LINKS_OF_A_LEAF: u64 = 2;

/// An open cgroup directory. It keeps denoting this cgroup, never a successor of the same name.
#[derive(Debug)]
pub struct CgroupDir {
    fd: OwnedFd,
    cgroup: CgroupRef,
    path: CgroupPath,
    controllers: Controllers,
}

// === impl CgroupDir ===

impl CgroupDir {
    pub(super) const fn new(
        fd: OwnedFd,
        cgroup: CgroupRef,
        path: CgroupPath,
        controllers: Controllers,
    ) -> Self {
        Self { fd, cgroup, path, controllers }
    }

    /// Which cgroup it is.
    pub const fn cgroup(&self) -> CgroupRef {
        self.cgroup
    }

    /// Where it was found.
    pub const fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// What its hierarchy is for.
    pub const fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// Thread groups in exactly this cgroup, in order, without duplicates.
    ///
    /// `NotFound` if the cgroup is gone; `Unavailable` if it is threaded or has a member outside our PID namespace,
    /// which v2 lists as 0. v1 leaves such members out: see [`LayoutWarning::PidNamespace`].
    ///
    /// An empty list does not mean unpopulated: tasks may be in children, and a v2 kernel from 7.0 on hides
    /// exiting ones.
    pub fn members(&self) -> Lookup<Vec<Tgid>> {
        answer(self.procs())
    }

    /// v2: whether any task is in this cgroup or below. v1: whether any is in exactly this cgroup.
    pub fn populated(&self) -> Lookup<bool> {
        answer(self.is_populated())
    }

    /// State of the freezer here, whoever asked for it. [`Freeze::None`] for the root and on kernels before 5.2.
    pub fn freeze_state(&self) -> Lookup<Freeze> {
        answer(self.freeze())
    }

    /// Whether somebody asked for the freeze of exactly this cgroup.
    pub fn freeze_requested(&self) -> Lookup<bool> {
        answer(self.is_freeze_requested())
    }

    /// Whether it is a threaded cgroup, whose processes only the domain above it lists. Never on v1.
    pub fn is_threaded(&self) -> Lookup<bool> {
        match self.read("cgroup.type") {
            Err(error) if error.is_unsupported() => Lookup::Found(false),
            text => answer(text.map(|text| text.trim_ascii() == b"threaded")),
        }
    }

    /// True only if the kernel says that the cgroup was removed; its name tells nothing, as v1 can rename.
    pub fn is_removed(&self) -> bool {
        self.is_gone()
    }

    /// Whether an enclosing cgroup keeps this one frozen, so that thawing this one alone has no effect.
    pub fn frozen_from_above(&self) -> Lookup<bool> {
        answer(self.held_by_ancestor())
    }

    /// Names of the cgroups directly below.
    pub fn children(&self) -> Lookup<Vec<OsString>> {
        answer(self.child_names())
    }

    /// Opens a child by the name that [`CgroupDir::children`] gave.
    pub fn child(&self, name: &OsStr) -> Lookup<Self> {
        answer(self.open_child(name))
    }

    /// Opens `cgroup.events` for waiting; v2 only.
    pub fn watch(&self) -> Lookup<EventsWatch> {
        answer(EventsWatch::open(self.as_fd(), self.path.clone()).map_err(|error| self.explain(error)))
    }

    pub(super) fn child_names(&self) -> Result<Vec<OsString>, CgroupfsError> {
        let failed = |source| CgroupfsError::List { path: self.path.clone(), source };
        let mut names = Vec::new();
        // A list of up to a hundred control files that most cgroups need not read: they have no cgroups below.
        if fstat(&self.fd).map_err(failed)?.st_nlink != LINKS_OF_A_LEAF {
            for entry in Dir::read_from(&self.fd).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                // kernfs fills in d_type, so every other entry is a control file.
                if entry.file_type() == FileType::Directory && name != "." && name != ".." {
                    names.push(name.to_owned());
                }
            }
        }
        // The end of the list is also what a removed directory looks like (getdents says ENOENT, which readdir
        // takes for the end).
        if self.is_gone() { Err(failed(Errno::NOENT)) } else { Ok(names) }
    }

    pub(super) fn open_child(&self, name: &OsStr) -> Result<Self, CgroupfsError> {
        let path = self
            .path
            .child(name)
            .map_err(|source| CgroupfsError::ChildName { path: self.path.clone(), source })?;
        let opened = open_beneath(self.as_fd(), name.as_ref())
            .and_then(|fd| fstat(&fd).map(|stat| (fd, CgroupId(stat.st_ino))));
        let (fd, id) = opened.map_err(|source| CgroupfsError::Open { path: path.clone(), source })?;
        let cgroup = CgroupRef { hierarchy: self.cgroup.hierarchy, id };
        Ok(Self::new(fd, cgroup, path, self.controllers))
    }

    pub(super) fn procs(&self) -> Result<Vec<Tgid>, CgroupfsError> {
        self.list(PROCS)
    }

    pub(super) fn is_populated(&self) -> Result<bool, CgroupfsError> {
        match self.controllers {
            Controllers::Unified => Ok(self.events()?.populated),
            Controllers::Freezer | Controllers::Other => {
                Ok(self.lists_any(PROCS)? || self.lists_any("tasks")?)
            }
        }
    }

    pub(super) fn events(&self) -> Result<parse::Events, CgroupfsError> {
        let text = self.read("cgroup.events")?;
        parse::events(&text).ok_or_else(|| self.content("cgroup.events", &text))
    }

    pub(super) fn flag(&self, file: &'static str) -> Result<bool, CgroupfsError> {
        let text = self.read(file)?;
        parse::flag(&text).ok_or_else(|| self.content(file, &text))
    }

    fn lists_any(&self, file: &'static str) -> Result<bool, CgroupfsError> {
        match self.list(file) {
            // A process that we cannot name is a process all the same.
            Err(CgroupfsError::ForeignMember { .. }) => Ok(true),
            list => Ok(!list?.is_empty()),
        }
    }

    fn list(&self, file: &'static str) -> Result<Vec<Tgid>, CgroupfsError> {
        let text = self.read_up_to(file, LIST_LIMIT)?;
        parse::list(&text).map_err(|error| match error {
            ListError::Foreign => CgroupfsError::ForeignMember { path: self.path.clone() },
            ListError::Malformed => self.content(file, &text),
        })
    }

    pub(super) fn read(&self, file: &'static str) -> Result<Vec<u8>, CgroupfsError> {
        self.read_up_to(file, FILE_LIMIT)
    }

    fn read_up_to(&self, file: &'static str, limit: u64) -> Result<Vec<u8>, CgroupfsError> {
        read_at(self.as_fd(), file, limit)
            .map_err(|source| self.explain(CgroupfsError::Read { file, path: self.path.clone(), source }))
    }

    /// A missing file may be a missing feature or a missing cgroup: the file that every cgroup has decides.
    pub(super) fn explain(&self, error: CgroupfsError) -> CgroupfsError {
        if let CgroupfsError::Read { file, source: ReadError::Open { source: Errno::NOENT, .. }, .. }
        | CgroupfsError::Write { file, source: Errno::NOENT, .. } = &error
            && !self.is_gone()
        {
            return CgroupfsError::NoFile { file, path: self.path.clone() };
        }
        error
    }

    /// True only if the kernel says that `cgroup.procs` is not there.
    fn is_gone(&self) -> bool {
        matches!(
            retry_on_intr(|| statat(&self.fd, PROCS, AtFlags::SYMLINK_NOFOLLOW)),
            Err(Errno::NOENT | Errno::NODEV)
        )
    }

    pub(super) fn content(&self, file: &'static str, text: &[u8]) -> CgroupfsError {
        let content = String::from_utf8_lossy(text).chars().take(64).collect();
        CgroupfsError::Content { file, path: self.path.clone(), content }
    }
}

impl AsFd for CgroupDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
