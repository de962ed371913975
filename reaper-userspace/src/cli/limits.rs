//! Options of the brakes: how much may be done at once, and what is too much to be true.

use std::time::Duration;

use clap::Args;

use super::options::duration;
use crate::policy::Budget;

/// How much may be done at once.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Brakes")]
pub(super) struct Limits {
    /// Begin no more reaps than this within a minute
    #[arg(long, value_name = "N", default_value_t = 60, env = "CGROUP_REAPER_MAX_PER_MINUTE")]
    max_per_minute: u32,
    /// More confirmed leaks at once than this are a storm: nothing is reaped until half as many are left or somebody
    /// has looked and said `cgroup-reaper resume`
    #[arg(long, value_name = "N", default_value_t = 100, env = "CGROUP_REAPER_STORM_COUNT")]
    storm_count: u32,
    /// So are more than this percentage of all known container cgroups, and more than ten; 100 for no limit
    #[arg(
        long, value_name = "PERCENT", default_value_t = 50, env = "CGROUP_REAPER_STORM_SHARE",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    storm_share: u32,
    /// While a containerd was started less than --restart-window ago, more confirmed leaks at once than this wait for
    /// the end of it: a runtime that restarts leaks in bursts and cleans up by itself
    #[arg(long, value_name = "N", default_value_t = 10, env = "CGROUP_REAPER_STORM_AFTER_RESTART")]
    storm_after_restart: u32,
    /// How long a containerd counts as just started
    #[arg(
        long, value_name = "DURATION", default_value = "10m", value_parser = duration,
        env = "CGROUP_REAPER_RESTART_WINDOW"
    )]
    restart_window: Duration,
}

// === impl Limits ===

impl Limits {
    /// As the policy takes it, with so many reaps between two looks.
    pub(super) const fn budget(&self, per_sweep: u32) -> Budget {
        Budget {
            per_minute: self.max_per_minute,
            per_sweep,
            storm: self.storm_count,
            storm_share: self.storm_share,
            after_restart: self.storm_after_restart,
            restart_window: self.restart_window,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        limits: Limits,
    }

    #[test]
    fn what_the_help_shows_is_what_the_policy_has() {
        let default = Budget::default();
        let shown = Command::parse_from(["reap"]).limits.budget(default.per_sweep);
        assert_eq!(shown, default);
    }
}
