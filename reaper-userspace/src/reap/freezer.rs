//! Stopping the trees while their members are listed, and letting go of them whatever happens.
//!
//! Facts: a task frozen by v1 keeps SIGKILL pending until thawed, one frozen by v2 dies frozen; thawing a child of a
//! frozen cgroup says success and does nothing (`kernel/cgroup/legacy_freezer.c`), so the thaw goes leaf to root and
//! the ancestor is asked. A freezer that somebody else had closed is opened only once signals are sent: a refused act
//! leaves everything as it was.

use std::time::Duration;

use super::members::{listed, walk};
use super::{Held, Timing};
use crate::cgroupfs::{CgroupControl as _, CgroupDir};
use crate::fact::{Controllers, Freeze};
use crate::ident::Lookup;

/// How long a tree may take to freeze before it is killed unfrozen; a task in D never freezes.
const FREEZE_WAIT: Duration = Duration::from_millis(50);
/// `freezer.state` of v1 has no notification, and that of `cgroup.events` comes once in 10 ms: look, at growing
/// intervals.
const FIRST_WAIT: Duration = Duration::from_micros(50);
const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// The freezers of the trees to kill; lets go of them when dropped.
#[derive(Debug)]
pub(super) struct Freezers<'a> {
    trees: Vec<&'a Held>,
    /// Roots that we closed and nobody else had.
    closed: Vec<&'a CgroupDir>,
    signalled: bool,
}

// === impl Freezers ===

impl<'a> Freezers<'a> {
    /// Asks the trees to stop, so that nobody inside forks or moves while it is listed. Best effort: killing works
    /// without.
    pub(super) fn close(trees: &[&'a Held]) -> Result<Self, String> {
        let mut freezers = Self { trees: trees.to_vec(), closed: vec![], signalled: false };
        for tree in needed(trees)? {
            match tree.dir.freeze_requested() {
                Lookup::Found(false) => {}
                Lookup::Found(true) | Lookup::NotFound => continue,
                Lookup::Unavailable(reason) => return Err(reason),
            }
            match tree.dir.freeze() {
                Ok(()) => freezers.closed.push(&tree.dir),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    tracing::debug!(cgroup = %tree.target.path, %error, "cannot freeze, killing it unfrozen");
                }
            }
        }
        Ok(freezers)
    }

    /// Waits, within bounds, until what was asked to stop has stopped.
    pub(super) fn settle(&self, timing: Timing) {
        let until = timing.within(FREEZE_WAIT);
        for dir in &self.closed {
            let mut wait = FIRST_WAIT;
            while dir.freeze_state() == Lookup::Found(Freeze::Freezing) && (timing.now)() < until {
                pause(wait);
                wait = wait.saturating_mul(2).min(LONGEST_WAIT);
            }
        }
    }

    /// From here on signals are pending, and every freezer of the trees is opened on every way out.
    pub(super) const fn signalled(&mut self) {
        self.signalled = true;
    }

    /// Opens them now.
    pub(super) fn open(self) {
        drop(self);
    }
}

impl Drop for Freezers<'_> {
    fn drop(&mut self) {
        if self.signalled {
            self.trees.iter().for_each(|tree| thaw_tree(&tree.dir));
        } else {
            self.closed.iter().for_each(|dir| thaw(dir));
        }
    }
}

/// The trees to stop: v1's freezer, or v2; both where processes are in v2's alone.
fn needed<'a>(trees: &[&'a Held]) -> Result<Vec<&'a Held>, String> {
    let of = |wanted| trees.iter().copied().find(|tree| tree.target.controllers == wanted);
    let (Some(freezer), Some(unified)) = (of(Controllers::Freezer), of(Controllers::Unified)) else {
        return Ok(trees.to_vec());
    };
    let beyond = !listed(&unified.dir)?.is_subset(&listed(&freezer.dir)?);
    Ok(if beyond { vec![freezer, unified] } else { vec![freezer] })
}

/// What keeps a tree frozen that nobody freezes by itself, if something does.
pub(super) fn blocked(trees: &[&Held]) -> Option<String> {
    trees.iter().find_map(|tree| match tree.dir.frozen_from_above() {
        Lookup::Found(true) => Some("an enclosing cgroup keeps it frozen".to_owned()),
        Lookup::Unavailable(reason) => Some(reason),
        Lookup::Found(false) | Lookup::NotFound => None,
    })
}

fn thaw_tree(root: &CgroupDir) {
    let below = walk(root).unwrap_or_default();
    below.iter().rev().for_each(thaw);
    thaw(root);
}

/// Takes back a freeze of exactly this cgroup, if there is one.
pub fn thaw(dir: &CgroupDir) {
    match dir.thaw() {
        Ok(()) => {}
        Err(error) if error.is_gone() || error.is_unsupported() => {}
        Err(error) => tracing::warn!(cgroup = %dir.path(), %error, "cannot thaw"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is waited for has no notification; the loops have a deadline"
)]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
