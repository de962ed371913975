//! Processes by incarnation.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A thread group id as seen in the host PID namespace, always positive.
///
/// The number alone is no identity: it is reused. See [`ProcessKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub struct Tgid(u32);

/// Start time of a process in clock ticks (10 ms) since boot, as in field 22 of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StartTicks(u64);

/// One incarnation of a process: the number and when it started.
///
/// Two processes share a key only if the number wrapped within one tick, so equality is a necessary check;
/// whoever signals holds a pidfd as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// The thread group id.
    pub tgid: Tgid,
    /// When this incarnation started.
    pub start: StartTicks,
}

// === impl Tgid ===

impl Tgid {
    /// The init process of the PID namespace.
    pub const INIT: Self = Self(1);

    /// `None` for 0 (a process outside the reader's PID namespace), for negative numbers (sentinels such as
    /// runc's -1) and for what does not fit a `pid_t`.
    pub fn new(raw: i64) -> Option<Self> {
        i32::try_from(raw).ok().filter(|pid| *pid > 0).and_then(|pid| u32::try_from(pid).ok()).map(Self)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<i64> for Tgid {
    type Error = String;

    fn try_from(raw: i64) -> Result<Self, String> {
        Self::new(raw).ok_or_else(|| format!("{raw} is no process number"))
    }
}

impl fmt::Display for Tgid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl StartTicks ===

impl StartTicks {
    /// Nanoseconds in one tick: `USER_HZ` is 100 on every architecture the project builds for.
    const NANOS: u64 = 10_000_000;

    /// From the value of `/proc/PID/stat`.
    pub const fn from_ticks(ticks: u64) -> Self {
        Self(ticks)
    }

    /// From the kernel's `start_boottime`, in nanoseconds since boot.
    pub const fn from_boot_nanos(nanos: u64) -> Self {
        Self(nanos / Self::NANOS)
    }

    /// Ticks since boot.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Nanoseconds since boot, rounded down to the tick.
    pub const fn boot_nanos(self) -> u64 {
        self.0.saturating_mul(Self::NANOS)
    }
}

impl fmt::Display for StartTicks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.tgid, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_and_foreign_pids_are_no_tgid() {
        for raw in [0, -1, i64::from(i32::MAX) + 1, i64::MIN] {
            assert_eq!(Tgid::new(raw), None, "{raw}");
        }
        assert_eq!(Tgid::new(1), Some(Tgid::INIT));
        assert_eq!(serde_json::from_str::<Tgid>("1").ok(), Some(Tgid::INIT));
        assert!(serde_json::from_str::<Tgid>("0").is_err());
    }

    #[test]
    fn kernel_nanoseconds_and_proc_ticks_agree() {
        assert_eq!(StartTicks::from_boot_nanos(812_345_678_901), StartTicks::from_ticks(81_234));
    }
}
