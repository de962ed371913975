//! How many leaks at once are too many to be leaks.
//!
//! A runtime that lost its state, or whose state cannot be seen, makes everything look leaked. Then nothing is reaped:
//! what has really leaked has time, what is alive has not. The breaker looks at the number and at the share of all
//! known container cgroups, and at a runtime that was just started: the creates and deletes that its end cut off leak
//! in bursts, and it is still cleaning up itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::BootTime;

/// Fewer are never a storm by their share: on a small node two leaks may be all there is.
const SMALL: u32 = 10;

/// How many incidents may be reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Reaps within any sixty seconds.
    pub per_minute: u32,
    /// Reaps in a row without another look at the node.
    pub per_sweep: u32,
    /// Leaks at once that are a storm if they are more.
    pub storm: u32,
    /// Percent of all known container cgroups that are a storm if more are leaked, and more than ten.
    pub storm_share: u32,
    /// Leaks at once that wait, if they are more, while a containerd has not been serving for `restart_window`.
    pub after_restart: u32,
    /// How long a containerd counts as just started.
    pub restart_window: Duration,
}

/// What the breaker looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Confirmed leaks.
    pub confirmed: u32,
    /// Container cgroups that are known, leaked or not.
    pub containers: u32,
    /// When the containerd of ours that started last did so.
    pub runtime_started: Option<BootTime>,
}

/// What the breaker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Go on.
    Calm,
    /// Hold, until this passes by itself.
    Restart {
        /// Why.
        reason: String,
        /// When the containerd has been serving for long enough.
        until: BootTime,
    },
    /// Hold, until it is over or a person has looked.
    Storm(String),
}

// === impl Budget ===

impl Default for Budget {
    fn default() -> Self {
        Self {
            per_minute: 60,
            per_sweep: 20,
            storm: 100,
            storm_share: 50,
            after_restart: 10,
            restart_window: Duration::from_mins(10),
        }
    }
}

impl Budget {
    /// Looks at the sky.
    pub fn weather(&self, census: &Census, now: BootTime) -> Weather {
        let Census { confirmed, containers, runtime_started } = *census;
        let limit = self.limit(containers);
        if confirmed > limit {
            return Weather::Storm(format!(
                "{confirmed} of {containers} containers leaked at once, more than {limit}: has a runtime lost its \
                 state?"
            ));
        }
        let until = runtime_started.map(|started| started.after(self.restart_window));
        match until.filter(|until| *until > now && confirmed > self.after_restart) {
            Some(until) => Weather::Restart {
                reason: format!(
                    "{confirmed} leaks at once, more than {}, and a containerd was started less than {:?} ago",
                    self.after_restart, self.restart_window
                ),
                until,
            },
            None => Weather::Calm,
        }
    }

    /// True if a storm is over: well below what began it, so that a count that goes up and down does not act at each
    /// low.
    pub fn is_over(&self, census: &Census) -> bool {
        census.confirmed <= self.limit(census.containers) / 2
    }

    fn limit(&self, containers: u32) -> u32 {
        let share = u64::from(containers).saturating_mul(self.storm_share.into()) / 100;
        let share = u32::try_from(share).unwrap_or(u32::MAX).max(SMALL);
        // A share of everything is no limit.
        if self.storm_share >= 100 { self.storm } else { self.storm.min(share) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: BootTime = BootTime::from_nanos(0);

    fn weather(confirmed: u32, containers: u32, minutes: u64) -> Weather {
        let census = Census { confirmed, containers, runtime_started: Some(START) };
        Budget::default().weather(&census, START.after(Duration::from_mins(minutes)))
    }

    fn is_storm(weather: &Weather) -> bool {
        matches!(weather, Weather::Storm(_))
    }

    #[test]
    fn a_storm_is_a_number_or_a_share_and_few_are_none() {
        let late = 60;
        for (confirmed, containers, storm) in [
            (10, 10, false),
            (11, 11, true),
            (11, 22, false),
            (12, 22, true),
            (100, 1000, false),
            (101, 1000, true),
        ] {
            assert_eq!(is_storm(&weather(confirmed, containers, late)), storm, "{confirmed} of {containers}");
        }
    }

    #[test]
    fn a_burst_after_a_restart_waits_until_the_window_is_over() {
        assert_eq!(weather(10, 100, 1), Weather::Calm);
        let Weather::Restart { until, .. } = weather(11, 100, 1) else { panic!("no wait") };
        assert_eq!(until, START.after(Duration::from_mins(10)));
        assert_eq!(weather(11, 100, 10), Weather::Calm);
        assert!(is_storm(&weather(60, 100, 1)), "a storm is one at any time");
    }

    #[test]
    fn a_storm_is_over_well_below_what_began_it() {
        let budget = Budget::default();
        let census = |confirmed| Census { confirmed, containers: 1000, runtime_started: None };
        assert!(!budget.is_over(&census(100)) && !budget.is_over(&census(51)) && budget.is_over(&census(50)));
    }

    #[test]
    fn all_of_all_is_no_limit_by_share() {
        let budget = Budget { storm_share: 100, ..Budget::default() };
        let census = Census { confirmed: 99, containers: 99, runtime_started: None };
        assert_eq!(budget.weather(&census, START), Weather::Calm);
    }
}
