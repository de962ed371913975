//! Whom the kernel saw this program kill, compared with whom it meant to kill.
//!
//! The probes report each SIGKILL that this process sends, by whatever way, with the incarnation it is for. Whoever is
//! named and is not one that the act may touch is a bystander. Without typed probes what was sent by pidfd is all there
//! is to compare.

use std::collections::BTreeSet;

use crate::ident::ProcessKey;
use crate::reap::Report;

/// Whom acts may touch, and what the kernel said.
#[derive(Debug, Default)]
pub(super) struct Watchman {
    /// Of the last act and the one before: an event can be late.
    now: BTreeSet<ProcessKey>,
    before: BTreeSet<ProcessKey>,
}

// === impl Watchman ===

impl Watchman {
    /// An act has ended.
    pub(super) fn acted(&mut self, report: &Report) {
        self.before = std::mem::replace(&mut self.now, report.familiar.clone());
    }

    /// Those of the killed that no act meant.
    pub(super) fn strangers(&self, killed: &[ProcessKey]) -> Vec<ProcessKey> {
        let meant = |process: &&ProcessKey| self.now.contains(process) || self.before.contains(process);
        killed.iter().filter(|process| !meant(process)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{StartTicks, Tgid};

    fn key(pid: i64, start: u64) -> ProcessKey {
        ProcessKey { tgid: Tgid::new(pid).unwrap(), start: StartTicks::from_ticks(start) }
    }

    fn report(familiar: &[ProcessKey]) -> Report {
        Report { familiar: familiar.iter().copied().collect(), ..Report::default() }
    }

    #[test]
    fn who_was_killed_and_not_meant_is_a_stranger_also_with_a_number_that_was() {
        let mut watchman = Watchman::default();
        assert_eq!(watchman.strangers(&[key(7, 1)]), [key(7, 1)]);
        watchman.acted(&report(&[key(7, 1), key(8, 1)]));
        assert_eq!(watchman.strangers(&[key(7, 1), key(8, 1)]), []);
        assert_eq!(watchman.strangers(&[key(7, 2), key(9, 1)]), [key(7, 2), key(9, 1)]);
    }

    #[test]
    fn an_event_that_is_one_act_late_accuses_nobody() {
        let mut watchman = Watchman::default();
        watchman.acted(&report(&[key(7, 1)]));
        watchman.acted(&report(&[key(8, 1)]));
        assert_eq!(watchman.strangers(&[key(7, 1), key(8, 1)]), []);
        watchman.acted(&report(&[]));
        assert_eq!(watchman.strangers(&[key(7, 1)]), [key(7, 1)]);
    }
}
