//! A held incarnation: what signals are sent through.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::dir::pidfd;
use super::error::{ProcfsError, answer};
use super::process::{Birth, birth, start_of};
use crate::ident::{Lookup, ProcessKey, Tgid};
use crate::kernel::{pidfd_number, read_path, until};
use crate::time::BootTime;

/// An fdinfo is a few lines.
const FDINFO_LIMIT: u64 = 4096;

/// A pidfd of exactly one incarnation. Its number may be reused; the descriptor then fails with ESRCH and never
/// denotes the successor.
#[derive(Debug)]
pub struct PidHandle {
    fd: OwnedFd,
    key: ProcessKey,
}

/// A held process whose start and parent were read by number, and are not proven to be its own yet.
#[derive(Debug)]
#[must_use = "what was read is worth nothing before it is proven"]
pub struct Candidate(Member);

/// A held process, with its parent and its name while it was held.
#[derive(Debug)]
pub struct Member {
    handle: PidHandle,
    parent: Option<Tgid>,
    comm: String,
}

// === impl PidHandle ===

impl PidHandle {
    /// Holds this incarnation; `NotFound` if it has been reaped, whoever has its number now.
    ///
    /// Proof that the descriptor is of this incarnation: the number is released only when its process is reaped,
    /// and a reaped process never is attached again (`kernel/exit.c:__unhash_process`). If the descriptor's
    /// process still is attached *after* the start time was read by number, the number was its own all the time in
    /// between, so it was its start time that was read.
    pub fn open(key: ProcessKey) -> Lookup<Self> {
        let fd = match pidfd(key.tgid) {
            Ok(fd) => fd,
            Err(Errno::SRCH) => return Lookup::NotFound,
            Err(source) => return Self::without_pidfd(key, source),
        };
        let handle = Self { fd, key };
        match start_of(key.tgid) {
            Lookup::Found(start) if start == key.start => {}
            Lookup::Found(_) | Lookup::NotFound => return Lookup::NotFound,
            Lookup::Unavailable(reason) => return Lookup::Unavailable(reason),
        }
        match handle.is_attached() {
            Lookup::Found(true) => Lookup::Found(handle),
            Lookup::Found(false) | Lookup::NotFound => Lookup::NotFound,
            Lookup::Unavailable(reason) => Lookup::Unavailable(reason),
        }
    }

    /// EINVAL and ENOENT are also said for a number that now is a thread of another process.
    fn without_pidfd(key: ProcessKey, source: Errno) -> Lookup<Self> {
        match start_of(key.tgid) {
            Lookup::NotFound => Lookup::NotFound,
            Lookup::Found(start) if start != key.start => Lookup::NotFound,
            Lookup::Found(_) | Lookup::Unavailable(_) => {
                answer(Err(ProcfsError::Pidfd { tgid: key.tgid, source }))
            }
        }
    }

    /// Which incarnation it is.
    pub const fn key(&self) -> ProcessKey {
        self.key
    }

    /// The liveness fence: whether the process has not been reaped, a zombie included; never `NotFound`.
    ///
    /// If true, everything read by number between [`PidHandle::open`] and now was about this incarnation.
    pub fn is_attached(&self) -> Lookup<bool> {
        answer(self.attached())
    }

    /// Waits until the whole thread group has exited (true) or the deadline has passed (false).
    pub fn poll_exit(&self, deadline: BootTime) -> Lookup<bool> {
        let tgid = self.key.tgid;
        answer(
            until(self.as_fd(), PollFlags::IN, deadline).map_err(|source| ProcfsError::Wait { tgid, source }),
        )
    }

    /// `kernel/fork.c:pidfd_show_fdinfo` (since Linux 5.5; `fs/pidfs.c` later): the number in the reader's PID
    /// namespace, -1 once reaped, 0 if the namespace does not show the process.
    fn attached(&self) -> Result<bool, ProcfsError> {
        let tgid = self.key.tgid;
        if pidfd_number(self.as_fd()) == Ok(tgid.get()) {
            return Ok(true);
        }
        let file = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let text = read_path(file, FDINFO_LIMIT).map_err(|source| ProcfsError::Fdinfo { tgid, source })?;
        match pid_field(&text) {
            Some(number) if number > 0 => Ok(true),
            Some(-1) => Ok(false),
            _ => Err(ProcfsError::ForeignPidfd { tgid }),
        }
    }
}

// === impl Candidate ===

impl Candidate {
    /// Holds the process that has this number now, and reads its start and its parent. `NotFound` if the number is no
    /// process's: nobody has it, or a thread that is no leader.
    pub fn hold(tgid: Tgid) -> Lookup<Self> {
        let fd = match pidfd(tgid) {
            Ok(fd) => fd,
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Lookup::NotFound,
            Err(source) => return answer(Err(ProcfsError::Pidfd { tgid, source })),
        };
        birth(tgid).and_then(|Birth { start, parent, comm }| {
            let handle = PidHandle { fd, key: ProcessKey { tgid, start } };
            Lookup::Found(Self(Member { handle, parent, comm }))
        })
    }

    /// The number, and the start that was read by it: whose it is, [`Candidate::prove`] tells.
    pub const fn key(&self) -> ProcessKey {
        self.0.handle.key
    }

    /// If the held process has its number still, it had it when the start and the parent were read, and all the time
    /// since. `NotFound` if it was reaped: then nothing is known about it.
    pub fn prove(self) -> Lookup<Member> {
        let Self(member) = self;
        member
            .handle
            .is_attached()
            .and_then(|attached| if attached { Lookup::Found(member) } else { Lookup::NotFound })
    }
}

// === impl Member ===

impl Member {
    /// Which incarnation it is.
    pub const fn key(&self) -> ProcessKey {
        self.handle.key
    }

    /// Its parent's number, `None` for 0.
    pub const fn parent(&self) -> Option<Tgid> {
        self.parent
    }

    /// Its name.
    pub fn comm(&self) -> &str {
        &self.comm
    }
}

impl AsFd for Member {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl AsFd for PidHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn pid_field(fdinfo: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(fdinfo).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_field_is_read_and_not_guessed() {
        assert_eq!(pid_field(b"pos:\t0\nflags:\t02\nPid:\t-1\nNSpid:\t-1\n"), Some(-1));
        assert_eq!(pid_field(b"pos:\t0\nNSpid:\t7\n"), None);
        assert_eq!(pid_field(b"Pid:\tx\n"), None);
    }
}
