//! Carries out a reap plan: the only module that signals, writes to cgroupfs, removes, unmounts and resets units.
//!
//! `Armed::open(plan)` holds every cgroup of the plan by identity; `fire(fresh proof, intent)` demands a proof made
//! after that and the token of a durable intent, then interprets the steps. It decides nothing about what leaked.
//!
//! # Invariants
//! - No signal goes to a number, nor to whoever is in a cgroup: only to a pidfd whose process was listed by the held
//!   directory after the pidfd was opened, was still attached to its number after that listing, and was judged or
//!   descends from one that was.
//! - Every freezer we close is opened again on every way out, and one that others closed only once signals are sent
//!   (`freezer::Freezers`).
//! - What came into a cgroup after the verdict ends the act and stays as it is, and so does everything after it.
//! - The whole reap of one incident ends by its deadline; what cannot end is named.

mod bundle;
mod freezer;
pub mod guard;
pub mod hook;
mod kill;
mod members;
mod outcome;
mod rehearse;
mod remove;
mod unit;
mod unmount;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub use freezer::thaw;
pub use outcome::{Remaining, Report, StepReport};
pub use rehearse::Rehearsal;

use self::hook::Point;
use self::members::Early;
use self::remove::Remover;
use crate::audit::Intent;
use crate::cgroupfs::{CgroupDir, HierarchyMount, Layout, Reopened};
use crate::fact::{MountFact, Sighting};
use crate::ident::{CgroupRef, Lookup, ProcessKey};
use crate::inventory::Tracked;
use crate::plan::{ReapPlan, Reapable, Step, Target};
use crate::time::BootTime;
use crate::verdict::LeakProof;

/// Longest time one incident's reap may take.
pub const BOUND: Duration = Duration::from_secs(2);

/// One cgroup tree of the plan, held open.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) target: Target,
    pub(crate) dir: CgroupDir,
    pub(crate) parent: CgroupDir,
}

/// A plan whose cgroups are held open by identity.
#[derive(Debug)]
#[must_use = "an armed plan holds cgroups open; fire or drop it"]
pub struct Armed {
    plan: ReapPlan,
    held: Vec<Held>,
    early: Early,
    layout: Arc<Layout>,
    remover: Remover,
}

/// Why a plan was not fired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A cgroup of the plan could not be opened.
    #[error("cgroup {path} cannot be held: {reason}")]
    NotHeld {
        /// Where it was.
        path: String,
        /// What the file system said.
        reason: String,
    },
    /// Its hierarchy is not mounted any more.
    #[error("hierarchy {0} is not mounted")]
    NoHierarchy(String),
    /// The system gives no thread to remove cgroups on.
    #[error("start a thread that removes: {0}")]
    NoThread(String),
    /// What was seen directly before the act is not what was planned for.
    #[error("{0}")]
    IdentityChanged(String),
}

/// What an act needs to know about time.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Reads the clock.
    pub now: fn() -> BootTime,
    /// When the reap must have ended.
    pub deadline: BootTime,
}

/// A subject that can be acted on.
pub trait Reap: Reapable + Tracked {
    /// A plan whose objects are held.
    type Armed: Send + 'static;

    /// Holds what the plan is about, by identity.
    fn arm(plan: ReapPlan<Self>, layout: Arc<Layout>) -> Result<Self::Armed, Refused>;

    /// Carries the plan out; `fresh` must have been proven after [`Reap::arm`], and `intent` is the durable record that
    /// this act begins. Nothing is touched when the fresh proof is about something else.
    fn fire(
        armed: Self::Armed,
        fresh: &LeakProof<Self>,
        intent: &Intent,
        timing: Timing,
    ) -> Result<Report, Refused>;

    /// Goes the same way and leaves out the calls that change something.
    fn rehearse(armed: Self::Armed, fresh: &LeakProof<Self>, timing: Timing) -> Result<Rehearsal, Refused>;
}

// === impl Timing ===

impl Timing {
    /// Starts the bound of one incident.
    pub fn start(now: fn() -> BootTime) -> Self {
        Self { now, deadline: now().after(BOUND) }
    }

    pub(crate) fn expired(&self) -> bool {
        (self.now)() >= self.deadline
    }

    /// The earlier of the deadline and `wait` from now.
    pub(crate) fn within(&self, wait: Duration) -> BootTime {
        (self.now)().after(wait).min(self.deadline)
    }
}

// === impl Armed ===

impl Armed {
    /// Opens every cgroup of the plan and checks that it is the planned one. A cgroup that is gone is no error: the
    /// plan has that much less to do.
    pub fn open(plan: ReapPlan, layout: Arc<Layout>) -> Result<Self, Refused> {
        let mut held = vec![];
        for step in plan.steps() {
            if let Step::Remove { target } = step
                && let Some(tree) = hold(target, &layout)?
            {
                held.push(tree);
            }
        }
        let early = members::hold_early(plan.proof().members());
        let remover = Remover::start().map_err(|source| Refused::NoThread(source.to_string()))?;
        hook::pass(Point::Opened);
        Ok(Self { plan, held, early, layout, remover })
    }

    /// The plan.
    pub const fn plan(&self) -> &ReapPlan {
        &self.plan
    }

    /// Carries the plan out.
    ///
    /// `fresh` must have been proven after [`Armed::open`], and `intent` is the durable record that this act begins.
    /// Nothing is touched when the fresh proof is about something else.
    pub fn fire(self, fresh: &LeakProof, intent: &Intent, timing: Timing) -> Result<Report, Refused> {
        same_incident(self.plan.proof(), fresh)?;
        tracing::debug!(leak = %self.plan.id(), txn = intent.txn(), "reap begins");
        let started = (timing.now)();
        hook::pass(Point::Proven);
        let Self { plan, held, early, layout, remover } = self;
        let report = Report::default();
        let mut run = Run { plan: &plan, fresh, held, early, layout, timing, remover, report };
        for step in plan.steps() {
            run.step(step);
        }
        Ok(run.finish((timing.now)().since(started)))
    }
}

impl Reap for Sighting {
    type Armed = Armed;

    fn arm(plan: ReapPlan, layout: Arc<Layout>) -> Result<Armed, Refused> {
        Armed::open(plan, layout)
    }

    fn fire(armed: Armed, fresh: &LeakProof, intent: &Intent, timing: Timing) -> Result<Report, Refused> {
        armed.fire(fresh, intent, timing)
    }

    fn rehearse(armed: Armed, fresh: &LeakProof, timing: Timing) -> Result<Rehearsal, Refused> {
        armed.rehearse(fresh, timing)
    }
}

fn same_incident<S: Tracked>(planned: &LeakProof<S>, fresh: &LeakProof<S>) -> Result<(), Refused> {
    let same_kind = fresh.kind() == planned.kind();
    let same_container = fresh.sighting().container() == planned.sighting().container();
    if !same_kind || !same_container || !fresh.sighting().continues(&planned.sighting().identity()) {
        let detail = "what is there, its members or its containerd are not the ones that were judged";
        return Err(Refused::IdentityChanged(detail.to_owned()));
    }
    Ok(())
}

fn hold(target: &Target, layout: &Layout) -> Result<Option<Held>, Refused> {
    let mount = mount_of(target, layout)?;
    let not_held = |reason| Refused::NotHeld { path: target.path.to_string(), reason };
    let dir = match mount.reopen(&target.path, target.cgroup) {
        Reopened::Same(dir) => dir,
        Reopened::Gone => return Ok(None),
        Reopened::OtherCgroup(other) => {
            return Err(Refused::IdentityChanged(format!(
                "{} is cgroup {} now, not {}",
                target.path, other.id.0, target.cgroup.id.0
            )));
        }
        Reopened::Unavailable(reason) => return Err(not_held(reason)),
    };
    let Some(above) = target.path.parent() else {
        return Err(not_held("it is the root of the hierarchy".to_owned()));
    };
    match mount.open(&above) {
        Lookup::Found(parent) => Ok(Some(Held { target: target.clone(), dir, parent })),
        Lookup::NotFound => Ok(None),
        Lookup::Unavailable(reason) => Err(not_held(reason)),
    }
}

fn mount_of<'a>(target: &Target, layout: &'a Layout) -> Result<&'a HierarchyMount, Refused> {
    layout
        .hierarchy(target.cgroup.hierarchy)
        .ok_or_else(|| Refused::NoHierarchy(target.hierarchy_name.clone()))
}

/// One reap under way.
#[derive(Debug)]
struct Run<'a> {
    plan: &'a ReapPlan,
    fresh: &'a LeakProof,
    held: Vec<Held>,
    early: Early,
    layout: Arc<Layout>,
    timing: Timing,
    remover: Remover,
    report: Report,
}

// === impl Run ===

impl Run<'_> {
    fn step(&mut self, step: &Step) {
        if let Some(reason) = self.report.blocks(step) {
            let skipped = StepReport::skipped(step, reason);
            self.report.steps.push(skipped);
            return;
        }
        let started = (self.timing.now)();
        let result = match step {
            Step::Kill { targets } => self.kill(targets),
            Step::Remove { target } => self.remove(target),
            Step::Unmount { mount } => self.unmount(mount),
            Step::ResetUnit { .. } => Err("a cgroup has no unit to reset".to_owned()),
        };
        let took = (self.timing.now)().since(started);
        self.report.steps.push(StepReport::done(step, took, result));
    }

    fn kill(&mut self, targets: &[Target]) -> Result<(), String> {
        let wanted: BTreeSet<CgroupRef> = targets.iter().map(|target| target.cgroup).collect();
        let trees: Vec<&Held> = self.held.iter().filter(|held| wanted.contains(&held.dir.cgroup())).collect();
        let judged: BTreeSet<ProcessKey> = self.fresh.members().collect();
        let planned: BTreeSet<ProcessKey> = self.plan.proof().members().collect();
        let early = std::mem::take(&mut self.early);
        let killing = kill::kill(&trees, &judged, &planned, early, self.timing);
        self.report.killed.extend(killing.killed);
        self.report.comms.extend(killing.comms);
        self.report.familiar.extend(killing.familiar);
        self.report.sent = self.report.sent.saturating_add(killing.sent);
        self.report.bystanders.extend(killing.bystanders);
        self.report.remaining = killing.remaining;
        self.report.escaped = killing.escaped;
        killing.error.map_or(Ok(()), Err)
    }

    fn unmount(&self, mount: &MountFact) -> Result<(), String> {
        hook::pass(Point::Unmount);
        unmount::unmount(mount, self.fresh.sighting().mounts.found(), self.timing)
    }

    fn remove(&mut self, target: &Target) -> Result<(), String> {
        let Some(index) = self.held.iter().position(|held| held.dir.cgroup() == target.cgroup) else {
            return Ok(());
        };
        let held = self.held.swap_remove(index);
        let dead: BTreeSet<ProcessKey> = self.fresh.members().chain(self.report.killed.clone()).collect();
        self.remover.remove(held, dead, self.timing).map_err(|failure| {
            self.report.taken_over |= failure.taken_over();
            failure.to_string()
        })
    }

    fn finish(mut self, took: Duration) -> Report {
        self.report.took = took;
        self.report.left_over = self
            .plan
            .steps()
            .iter()
            .filter_map(|step| match step {
                Step::Remove { target } => Some(target),
                Step::Kill { .. } | Step::Unmount { .. } | Step::ResetUnit { .. } => None,
            })
            .filter(|target| still_there(target, &self.layout))
            .map(Target::place)
            .collect();
        self.report
    }
}

fn still_there(target: &Target, layout: &Layout) -> bool {
    mount_of(target, layout).is_ok_and(|mount| match mount.reopen(&target.path, target.cgroup) {
        Reopened::Same(_) | Reopened::Unavailable(_) => true,
        Reopened::Gone | Reopened::OtherCgroup(_) => false,
    })
}
