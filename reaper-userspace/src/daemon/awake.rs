//! Notices that the machine was suspended: the boot clock went on and the monotonic one did not.
//!
//! Nothing ran meanwhile, neither we nor containerd. What looked leaked before gets its whole grace again.

use std::time::Duration;

use crate::time::BootTime;

/// Far above what separates two readings of two clocks, far below a suspend.
const LEAST: Duration = Duration::from_millis(500);

/// How much the machine had slept since boot at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awake(Duration);

// === impl Awake ===

impl Awake {
    /// From both clocks at one moment.
    pub(super) const fn at(boot: BootTime, monotonic: Duration) -> Self {
        Self(boot.since(BootTime::from_nanos(0)).saturating_sub(monotonic))
    }

    /// How long it slept between `self` and `now`, if it did.
    pub(super) fn slept_until(self, now: Self) -> Option<Duration> {
        let slept = now.0.saturating_sub(self.0);
        (slept >= LEAST).then_some(slept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot_millis: u64, monotonic_millis: u64) -> Awake {
        let boot = BootTime::default().after(Duration::from_millis(boot_millis));
        Awake::at(boot, Duration::from_millis(monotonic_millis))
    }

    #[test]
    fn a_suspend_is_what_only_the_boot_clock_counts() {
        let before = at(10_000, 9_000);
        assert_eq!(before.slept_until(at(70_000, 69_000)), None, "a minute awake");
        assert_eq!(before.slept_until(at(70_000, 9_100)), Some(Duration::from_millis(59_900)));
    }

    #[test]
    fn readings_that_are_a_little_apart_are_no_suspend() {
        assert_eq!(at(10_000, 10_000).slept_until(at(10_450, 10_000)), None);
        assert_eq!(at(10_000, 9_000).slept_until(at(10_000, 9_900)), None, "never negative");
    }
}
