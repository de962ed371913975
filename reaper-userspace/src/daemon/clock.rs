//! The only place that reads a clock.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::awake::Awake;
use crate::audit::Stamp;
use crate::time::BootTime;

/// Time since boot, suspend included.
pub fn boot() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    BootTime::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// How much the machine has slept since boot.
pub(super) fn awake() -> Awake {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Awake::at(boot(), Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
}

/// Wall time, for records that people read.
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// Both, for the audit log.
pub fn stamp() -> Stamp {
    Stamp { wall: wall(), boot: boot() }
}

/// The wall time of a moment since boot.
pub fn wall_of(moment: BootTime) -> Timestamp {
    let ago = boot().since(moment);
    wall().checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH)
}
