//! One held `/proc/PID` directory.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use ::procfs::FromRead as _;
use ::procfs::process::Stat;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstatfs, openat, readlinkat, statat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::error::ProcfsError;
use crate::fact::FileId;
use crate::ident::Tgid;
use crate::kernel::{ReadError, read_at, read_path, read_prefix_at};

/// `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`.
const OVERLAY_MAGIC: i64 = 0x794c_7630;
/// `stat`, `cgroup` and `wchan` are a few lines; `cgroup` holds up to 16 paths.
const FILE_LIMIT: u64 = 1 << 17;

/// The directory of one incarnation: it never shows a successor with the same number.
#[derive(Debug)]
pub(super) struct ProcDir {
    fd: OwnedFd,
    tgid: Tgid,
}

// === impl ProcDir ===

impl ProcDir {
    pub(super) fn open(tgid: Tgid) -> Result<Self, ProcfsError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match retry_on_intr(|| openat(CWD, format!("/proc/{tgid}"), flags, Mode::empty())) {
            Ok(fd) => Ok(Self { fd, tgid }),
            Err(Errno::NOENT) => Err(absence(tgid)),
            Err(source) => Err(ProcfsError::Open { tgid, source }),
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// `stat` of whatever process has the number now, for a caller that proves afterwards which one that was.
    pub(super) fn stat_by_number(tgid: Tgid) -> Result<Stat, ProcfsError> {
        match read_path(format!("/proc/{tgid}/stat"), FILE_LIMIT) {
            Ok(text) => Stat::from_read(text.as_slice()).map_err(|source| ProcfsError::Stat { tgid, source }),
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::SRCH)) => Err(absence(tgid)),
            Err(source) => Err(ProcfsError::Read { file: "stat", tgid, source }),
        }
    }

    pub(super) fn stat(&self) -> Result<Stat, ProcfsError> {
        let text = self.read("stat")?;
        Stat::from_read(text.as_slice()).map_err(|source| ProcfsError::Stat { tgid: self.tgid, source })
    }

    pub(super) fn read(&self, file: &'static str) -> Result<Vec<u8>, ProcfsError> {
        read_at(self.fd.as_fd(), file, FILE_LIMIT).map_err(|source| self.explain(file, source))
    }

    pub(super) fn read_prefix(&self, file: &'static str, limit: u64) -> Result<Vec<u8>, ProcfsError> {
        read_prefix_at(self.fd.as_fd(), file, limit).map_err(|source| self.explain(file, source))
    }

    /// Device and inode of the file that `exe` leads to; `None` as in [`Self::exe`].
    pub(super) fn exe_file(&self) -> Result<Option<FileId>, ProcfsError> {
        match retry_on_intr(|| statat(&self.fd, "exe", AtFlags::empty())) {
            Ok(stat) => Ok(Some(FileId { device: stat.st_dev, inode: stat.st_ino })),
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(source) => Err(self.explain("exe", ReadError::Read { path: "exe".into(), source })),
        }
    }

    /// Whether `exe` leads to a file of an overlay; `None` as in [`Self::exe`].
    pub(super) fn exe_on_overlay(&self) -> Result<Option<bool>, ProcfsError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| openat(&self.fd, "exe", flags, Mode::empty()));
        match opened.and_then(|file| retry_on_intr(|| fstatfs(&file))) {
            Ok(stat) => Ok(Some(stat.f_type == OVERLAY_MAGIC)),
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(source) => Err(self.explain("exe", ReadError::Read { path: "exe".into(), source })),
        }
    }

    /// Target of `exe`; `None` where there is none (kernel threads, zombies) and where we may not see it.
    pub(super) fn exe(&self) -> Result<Option<PathBuf>, ProcfsError> {
        match retry_on_intr(|| readlinkat(&self.fd, "exe", Vec::new())) {
            Ok(target) => Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))),
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(source) => Err(self.explain("exe", ReadError::Read { path: "exe".into(), source })),
        }
    }

    /// ENOENT and ESRCH are said for a reaped process, for a missing feature, and with `hidepid` for a process that
    /// we may not look into (`fs/proc/base.c:proc_pid_permission`): the file that every process has tells the
    /// second, `pidfd_open` the third.
    fn explain(&self, file: &'static str, source: ReadError) -> ProcfsError {
        let absent = |errno| matches!(errno, Errno::NOENT | Errno::SRCH);
        if source.errno().is_some_and(absent)
            && statat(&self.fd, "stat", AtFlags::SYMLINK_NOFOLLOW).is_err_and(absent)
        {
            return absence(self.tgid);
        }
        ProcfsError::Read { file, tgid: self.tgid, source }
    }
}

/// Asks a second source whether a number without a `/proc` entry really is no process. A number that was reused
/// this very moment gives no answer.
///
/// An init that died is still the session of its children, so its number is not free: kernels before 6.16 then say
/// EINVAL (`kernel/fork.c:pidfd_prepare`: the number has no thread group), seen on 6.1.
fn absence(tgid: Tgid) -> ProcfsError {
    match pidfd(tgid) {
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => ProcfsError::Absent { tgid },
        Err(source) => ProcfsError::Pidfd { tgid, source },
        Ok(_) => ProcfsError::Hidden { tgid },
    }
}

/// A pidfd of whatever process has the number now. ESRCH: none. EINVAL, or ENOENT on newer kernels: none either, but a
/// thread that is no leader, a session or a process group has the number.
pub(super) fn pidfd(tgid: Tgid) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(tgid.get()).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)?;
    retry_on_intr(|| pidfd_open(pid, PidfdFlags::empty()))
}
