//! Freezing a tree, and thawing it again whatever happens.
//!
//! Facts: a task frozen by v1 keeps SIGKILL pending until thawed; thawing a child of a frozen cgroup says success and
//! does nothing (`kernel/cgroup/legacy_freezer.c`), so the thaw goes leaf to root and the ancestor is asked.

use std::time::Duration;

use super::Timing;
use super::members::walk;
use crate::cgroupfs::{CgroupControl as _, CgroupDir};
use crate::fact::Freeze;
use crate::ident::Lookup;

/// How long a tree may take to freeze before it is killed unfrozen; a task in D never freezes.
const FREEZE_WAIT: Duration = Duration::from_millis(50);
/// Poll interval of v1's `freezer.state`, which has no notification.
const FREEZE_POLL: Duration = Duration::from_millis(1);

/// Opens the freezers of a tree when dropped.
#[derive(Debug)]
pub(super) struct Thaw<'a> {
    root: &'a CgroupDir,
}

/// Freezes the tree, so that nobody inside forks or moves while it is listed. Best effort: killing works without.
pub(super) fn freeze(root: &CgroupDir, timing: Timing) -> Thaw<'_> {
    let thaw = Thaw { root };
    if let Err(error) = root.freeze() {
        tracing::debug!(cgroup = %root.path(), %error, "cannot freeze, killing it unfrozen");
        return thaw;
    }
    let until = timing.within(FREEZE_WAIT);
    while root.freeze_state() == Lookup::Found(Freeze::Freezing) && (timing.now)() < until {
        pause(FREEZE_POLL);
    }
    thaw
}

#[expect(
    clippy::disallowed_methods,
    reason = "freezer.state of v1 has no notification; the loop has a deadline"
)]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}

// === impl Thaw ===

impl Thaw<'_> {
    /// Thaws now, and says what keeps the tree frozen, if something does.
    pub(super) fn now(&self) -> Option<String> {
        thaw_tree(self.root);
        match self.root.frozen_from_above() {
            Lookup::Found(true) => Some("an enclosing cgroup keeps it frozen".to_owned()),
            Lookup::Unavailable(reason) => Some(reason),
            Lookup::Found(false) | Lookup::NotFound => None,
        }
    }
}

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        thaw_tree(self.root);
    }
}

fn thaw_tree(root: &CgroupDir) {
    let thaw = |dir: &CgroupDir| match dir.thaw() {
        Ok(()) => {}
        Err(error) if error.is_gone() => {}
        Err(error) => tracing::warn!(cgroup = %dir.path(), %error, "cannot thaw"),
    };
    let below = walk(root).unwrap_or_default();
    below.iter().rev().for_each(thaw);
    thaw(root);
}
