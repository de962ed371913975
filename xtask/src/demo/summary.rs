//! The demo's result, as `--json` prints it, and when it counts as passed.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Serialize;

/// The result; the field names are relied on by scripts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Leaks made, by kind.
    pub(super) made: BTreeMap<&'static str, usize>,
    /// Leaks that `scan` confirmed with the right kind.
    pub(super) confirmed: usize,
    /// Leaks whose audit record says reaped, and that are gone in every hierarchy.
    pub(super) reaped: usize,
    /// Live containers before the product ran.
    pub(super) live_before: usize,
    /// Live containers at the end, the same inits.
    pub(super) live_after: usize,
    /// Dead bystanders, and intents about anything that is no leak of the demo.
    pub(super) bystanders_hit: usize,
    /// Leaks that are not gone, and what the demo itself left on the machine.
    pub(super) left_over: Vec<String>,
    /// From the last event of the runtime to confirmed, grace included; one a leak.
    pub(super) detection_ms: Vec<f64>,
    /// Duration of each reap.
    pub(super) reap_ms: Vec<f64>,
    /// What a start of containerd takes.
    pub(super) containerd_start_ms: StartTimes,
}

/// Milliseconds until a restarted containerd served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct StartTimes {
    /// With the leaks in place.
    pub(super) leaked: u64,
    /// After they were reaped.
    pub(super) reaped: u64,
}

// === impl Summary ===

impl Summary {
    /// An error that says what is not as it must be.
    pub(super) fn verdict(&self) -> Result<()> {
        let made: usize = self.made.values().sum();
        ensure!(made > 0, "no leak was made");
        ensure!(self.confirmed == made, "{} of {made} leaks confirmed", self.confirmed);
        ensure!(self.reaped == self.confirmed, "{} of {made} leaks reaped", self.reaped);
        ensure!(
            self.live_after == self.live_before,
            "{} of {} live containers are alive",
            self.live_after,
            self.live_before
        );
        ensure!(self.bystanders_hit == 0, "{} bystanders hit", self.bystanders_hit);
        ensure!(self.left_over.is_empty(), "left over: {}", self.left_over.join(", "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> Summary {
        Summary {
            made: BTreeMap::from([("cgroup.empty", 2), ("cgroup.orphaned", 1)]),
            confirmed: 3,
            reaped: 3,
            live_before: 5,
            live_after: 5,
            ..Summary::default()
        }
    }

    #[test]
    fn everything_reaped_and_nothing_else_touched_passes() {
        assert!(passed().verdict().is_ok());
    }

    #[test]
    fn each_single_shortcoming_fails() {
        let spoil: [fn(&mut Summary); 6] = [
            |summary| summary.made.clear(),
            |summary| summary.confirmed = 2,
            |summary| summary.reaped = 2,
            |summary| summary.live_after = 4,
            |summary| summary.bystanders_hit = 1,
            |summary| summary.left_over.push("mount".to_owned()),
        ];
        for spoil in spoil {
            let mut summary = passed();
            spoil(&mut summary);
            assert!(summary.verdict().is_err(), "{summary:?}");
        }
    }
}
