//! When to look next: soon after an event, when a suspect becomes ready, and from time to time in any case.
//!
//! Pure. A look costs a question to containerd for each container, so events cannot make it look without pause: the
//! pause after a look that an event asked for is a multiple of what the last one took.

use std::time::Duration;

use crate::time::BootTime;

/// Events come in bursts; a create alone gives a dozen.
const DEBOUNCE: Duration = Duration::from_millis(25);
/// Share of the time spent on looks that events ask for: one part in five.
const REST: u32 = 4;
/// However long a look takes, events are not left alone for longer.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// Decides when to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    interval: Duration,
    periodic: BootTime,
    not_before: BootTime,
    event: Option<BootTime>,
    ready: Option<BootTime>,
}

/// Why it is time to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The interval is over.
    Periodic,
    /// Something happened, or a suspect is ready.
    Asked,
}

// === impl Schedule ===

impl Schedule {
    /// The first look is due at once.
    pub(super) const fn new(interval: Duration, now: BootTime) -> Self {
        Self { interval, periodic: now, not_before: now, event: None, ready: None }
    }

    /// Something happened.
    pub(super) fn hint(&mut self, now: BootTime) {
        self.event.get_or_insert_with(|| now.after(DEBOUNCE));
    }

    /// A look ended; `ready` is when time alone would change a verdict.
    pub(super) fn looked(&mut self, began: BootTime, now: BootTime, ready: Option<BootTime>) {
        self.periodic = now.after(self.interval);
        self.not_before = now.after(now.since(began).saturating_mul(REST).min(LONGEST_REST));
        self.ready = ready;
        self.event = None;
    }

    /// When, and why.
    pub(super) fn next(&self) -> (BootTime, Due) {
        let asked =
            [self.event.map(|event| event.max(self.not_before)), self.ready].into_iter().flatten().min();
        match asked {
            Some(asked) if asked < self.periodic => (asked, Due::Asked),
            Some(_) | None => (self.periodic, Due::Periodic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime::default().after(Duration::from_millis(millis))
    }

    fn looked(took: u64, ready: Option<BootTime>) -> Schedule {
        let began = at(1000_u64.saturating_sub(took));
        let mut schedule = Schedule::new(Duration::from_mins(1), at(0));
        schedule.looked(began, at(1000), ready);
        schedule
    }

    #[test]
    fn the_first_look_is_due_at_once_and_then_every_interval() {
        let schedule = Schedule::new(Duration::from_mins(1), at(5));
        assert_eq!(schedule.next(), (at(5), Due::Periodic));
        assert_eq!(looked(10, None).next(), (at(61_000), Due::Periodic));
    }

    #[test]
    fn a_burst_of_events_is_one_look_after_the_first() {
        let mut schedule = looked(0, None);
        schedule.hint(at(2000));
        schedule.hint(at(2020));
        assert_eq!(schedule.next(), (at(2025), Due::Asked));
    }

    #[test]
    fn events_wait_in_proportion_to_what_a_look_costs() {
        let mut schedule = looked(100, None);
        schedule.hint(at(1001));
        assert_eq!(schedule.next(), (at(1400), Due::Asked));
        let mut slow = looked(900, None);
        slow.hint(at(1001));
        assert_eq!(slow.next(), (at(3000), Due::Asked));
    }

    #[test]
    fn a_suspect_is_looked_at_when_it_is_ready() {
        assert_eq!(looked(100, Some(at(1200))).next(), (at(1200), Due::Asked));
    }
}
