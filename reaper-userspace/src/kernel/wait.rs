//! Waiting for a file descriptor, at most until a moment.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::time::BootTime;

/// Waits until the descriptor reports something of `interest` (or an error or hang-up): true; or until the
/// deadline has passed: false.
///
/// The deadline is an armed timer and not a length of time: interruptions and repeated waits cannot stretch it,
/// and no clock has to be read here.
pub fn until(fd: BorrowedFd<'_>, interest: PollFlags, deadline: BootTime) -> Result<bool, Errno> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    // Zero would disarm the timer, and every moment that has passed fires at once.
    let nanos = deadline.as_nanos().max(1);
    let value = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
    let mut fds = [PollFd::from_borrowed_fd(fd, interest), PollFd::new(&timer, PollFlags::IN)];
    retry_on_intr(|| poll(&mut fds, None))?;
    let [subject, _timer] = fds;
    Ok(!subject.revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};
    use std::os::fd::AsFd as _;

    fn now() -> BootTime {
        let now = clock_gettime(ClockId::Boottime);
        let nanos = std::time::Duration::try_from(now).unwrap().as_nanos();
        BootTime::from_nanos(u64::try_from(nanos).unwrap())
    }

    #[test]
    fn a_silent_descriptor_waits_for_the_deadline_and_a_past_one_does_not_wait() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let start = now();
        let deadline = start.after(std::time::Duration::from_millis(30));
        assert!(!until(reader.as_fd(), PollFlags::IN, deadline).unwrap());
        assert!(now() >= deadline);
        assert!(!until(reader.as_fd(), PollFlags::IN, BootTime::from_nanos(0)).unwrap());
    }

    #[test]
    fn a_hang_up_ends_the_wait() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(writer);
        assert!(until(reader.as_fd(), PollFlags::IN, BootTime::from_nanos(u64::MAX)).unwrap());
    }
}
