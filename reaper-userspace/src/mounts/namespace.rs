//! The mount namespace and the root directory of one incarnation of a process.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{chroot, fchdir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::MountsError;
use super::table::Table;
use crate::ident::{Lookup, ProcessKey, StartTicks, Tgid};

/// A held namespace, still to be entered.
#[derive(Debug)]
pub(super) struct Namespace {
    process: ProcessKey,
    mounts: OwnedFd,
    root: OwnedFd,
}

/// Proof that the calling thread is in a namespace, and its way to the mount table there.
#[derive(Debug)]
pub(super) struct Entered {
    process: ProcessKey,
    /// Our own `/proc/PID/task/TID`, held from before: `/proc` of the namespace may be another or missing.
    thread: OwnedFd,
    root: OwnedFd,
}

// === impl Namespace ===

impl Namespace {
    pub(super) fn open(
        process: ProcessKey,
        start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>,
    ) -> Result<Self, MountsError> {
        let dir = process_dir(process)?;
        let mounts = open_at(dir.as_fd(), "ns/mnt", OFlags::RDONLY, process)?;
        let root = open_root(dir.as_fd(), process)?;
        verify(process, start_of)?;
        Ok(Self { process, mounts, root })
    }

    /// Moves the calling thread, for good, into the namespace and to the process's root directory.
    pub(super) fn enter(self) -> Result<Entered, MountsError> {
        let process = self.process;
        let failed = |source| MountsError::Enter { process, source };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let thread = openat(CWD, "/proc/thread-self", flags, Mode::empty()).map_err(failed)?;
        // setns refuses a thread that shares its working directory with others (`fs/namespace.c:mntns_install`).
        unshare(CloneFlags::CLONE_FS)
            .map_err(|errno| failed(Errno::from_io_error(&errno.into()).unwrap_or(Errno::IO)))?;
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(failed)?;
        fchdir(&self.root).and_then(|()| chroot(".")).map_err(failed)?;
        Ok(Entered { process, thread, root: self.root })
    }
}

// === impl Entered ===

impl Entered {
    /// Makes the directory that a target is in the thread's working directory, and returns the target's name there. No
    /// symbolic link is followed: the mount table names none.
    pub(super) fn stand_beside(&self, target: &Path) -> Result<PathBuf, Errno> {
        let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Errno::BUSY);
        };
        let below = above.strip_prefix("/").unwrap_or(above);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let dir = retry_on_intr(|| openat2(&self.root, below, flags, Mode::empty(), resolve))?;
        fchdir(&dir)?;
        Ok(PathBuf::from(name))
    }

    pub(super) fn table(&self) -> Result<Table, MountsError> {
        Table::read(self.thread.as_fd(), self.process)
    }
}

/// `/proc/PID` of whatever process has the number now: [`verify`] after everything below it has been opened.
pub(super) fn process_dir(process: ProcessKey) -> Result<OwnedFd, MountsError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    open_at(CWD, &format!("/proc/{}", process.tgid), flags, process)
}

/// The root directory of the process: targets in its mount table are relative to it.
pub(super) fn open_root(dir: BorrowedFd<'_>, process: ProcessKey) -> Result<OwnedFd, MountsError> {
    open_at(dir, "root", OFlags::PATH | OFlags::DIRECTORY, process)
}

fn open_at(
    dir: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    process: ProcessKey,
) -> Result<OwnedFd, MountsError> {
    retry_on_intr(|| openat(dir, path, flags | OFlags::CLOEXEC, Mode::empty()))
        .map_err(|source| MountsError::Open { process, source })
}

/// If the number still is the incarnation's, everything opened by it before was the incarnation's, too: an earlier
/// holder of the number had to be reaped before this one started, and we were told of this one before.
pub(super) fn verify(
    process: ProcessKey,
    start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>,
) -> Result<(), MountsError> {
    match start_of(process.tgid) {
        Lookup::Found(start) if start == process.start => Ok(()),
        Lookup::Found(_) | Lookup::NotFound => Err(MountsError::Gone { process }),
        Lookup::Unavailable(reason) => Err(MountsError::Unidentified { process, reason }),
    }
}
