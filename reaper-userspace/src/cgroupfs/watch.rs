//! Waiting for a v2 subtree to become unpopulated.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread, retry_on_intr};

use super::error::{CgroupfsError, answer};
use super::parse;
use crate::ident::{CgroupPath, Lookup};
use crate::kernel::{ReadError, until};
use crate::time::BootTime;

const FILE: &str = "cgroup.events";

/// An open `cgroup.events`; its descriptor polls `PRI` after each change since the last read.
///
/// The kernel limits notifications of one file to one per 10 ms (`CGROUP_FILE_NOTIFY_MIN_INTV`).
#[derive(Debug)]
pub struct EventsWatch {
    fd: OwnedFd,
    path: CgroupPath,
}

// === impl EventsWatch ===

impl EventsWatch {
    pub(super) fn open(dir: BorrowedFd<'_>, path: CgroupPath) -> Result<Self, CgroupfsError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match retry_on_intr(|| openat(dir, FILE, flags, Mode::empty())) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(source) => {
                let source = ReadError::Open { path: FILE.into(), source };
                Err(CgroupfsError::Read { file: FILE, path, source })
            }
        }
    }

    /// Reads the file anew, which also re-arms the descriptor. `NotFound` if the cgroup is gone.
    pub fn populated(&self) -> Lookup<bool> {
        answer(self.read())
    }

    /// Waits until no task is left in the subtree (true) or the deadline has passed (false). `NotFound` if the
    /// cgroup is gone.
    pub fn await_unpopulated(&self, deadline: BootTime) -> Lookup<bool> {
        answer(self.wait(deadline))
    }

    fn wait(&self, deadline: BootTime) -> Result<bool, CgroupfsError> {
        // Read before each wait: a change between the two makes the wait return at once.
        while self.read()? {
            let changed = until(self.as_fd(), PollFlags::PRI, deadline)
                .map_err(|source| CgroupfsError::Wait { path: self.path.clone(), source })?;
            if !changed {
                return Ok(!self.read()?);
            }
        }
        Ok(true)
    }

    fn read(&self) -> Result<bool, CgroupfsError> {
        let mut buffer = [0; 512];
        let read = |source: Errno| CgroupfsError::Read {
            file: FILE,
            path: self.path.clone(),
            source: ReadError::Read { path: FILE.into(), source },
        };
        let length = retry_on_intr(|| pread(&self.fd, &mut buffer, 0)).map_err(read)?;
        let text = buffer.get(..length).unwrap_or_default();
        parse::events(text).map(|events| events.populated).ok_or_else(|| CgroupfsError::Content {
            file: FILE,
            path: self.path.clone(),
            content: String::from_utf8_lossy(text).chars().take(64).collect(),
        })
    }
}

impl AsFd for EventsWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
