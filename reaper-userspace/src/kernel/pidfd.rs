//! What a pidfd says about its process without a detour over `/proc`.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};

/// `struct pidfd_info` as it was first (`include/uapi/linux/pidfd.h`, `PIDFD_INFO_SIZE_VER0`); later kernels take this
/// size, too.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    parent: u32,
    ids: [u32; 8],
    spare: u32,
}

/// `PIDFD_GET_INFO`.
const GET_INFO: u32 = opcode::read_write::<PidfdInfo>(0xff, 11);

/// The number that the process of a pidfd has in our PID namespace, as long as it has one: that is, until it is reaped.
///
/// `PIDFD_GET_INFO` is of Linux 6.13. An error means nothing but that something else must be asked: older kernels say
/// ENOTTY or EINVAL, and ESRCH is also said for a process whose parent our namespace does not show
/// (`fs/pidfs.c:pidfd_info`).
pub fn pidfd_number(pidfd: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut info = PidfdInfo::default();
    #[expect(unsafe_code, reason = "nothing safe offers this request")]
    // SAFETY: the request reads and writes one `struct pidfd_info` of the size that its number names.
    let request = unsafe { Updater::<GET_INFO, _>::new(&mut info) };
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: the value lives across the call; on a descriptor that is no pidfd the kernel refuses the request.
    unsafe { ioctl(pidfd, request) }?;
    Ok(info.pid)
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::os::fd::AsFd as _;

    #[test]
    fn a_pidfd_of_a_process_tells_its_number() {
        let own = std::process::id();
        let pidfd = pidfd_open(Pid::from_raw(own.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
        match pidfd_number(pidfd.as_fd()) {
            Ok(number) => assert_eq!(number, own),
            Err(errno) => assert!(matches!(errno, Errno::NOTTY | Errno::INVAL), "{errno}"),
        }
    }

    #[test]
    fn another_descriptor_tells_none() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(pidfd_number(file.as_fd()).is_err());
    }
}
