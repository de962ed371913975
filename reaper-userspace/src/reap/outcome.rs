//! What became of a reap.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::ident::ProcessKey;
use crate::leak::Outcome;
use crate::plan::Step;

/// A process that did not end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remaining {
    /// Which.
    pub process: ProcessKey,
    /// What it calls itself.
    pub comm: String,
    /// Scheduler state and kernel wait channel, or why they could not be read.
    pub state: String,
}

/// How one step went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepReport {
    /// The step's word.
    pub op: &'static str,
    /// What it was done to.
    pub object: String,
    /// How long it took.
    pub took: Duration,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// How a reap went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each step, in order.
    pub steps: Vec<StepReport>,
    /// Processes that died by it.
    pub killed: Vec<ProcessKey>,
    /// What those call themselves.
    pub comms: BTreeMap<ProcessKey, String>,
    /// Whom the act might touch: who was judged, and who descends from those.
    pub familiar: BTreeSet<ProcessKey>,
    /// Signals that reached a process.
    pub sent: usize,
    /// Processes killed that were neither judged nor descend from one that was. Must stay empty.
    pub bystanders: Vec<ProcessKey>,
    /// Processes that did not end, or do not belong and were left alone.
    pub remaining: Vec<Remaining>,
    /// Judged processes that left the cgroup before they could be killed, and were left alone.
    pub escaped: Vec<Remaining>,
    /// The cgroup, or its name, was found in use again after the kill: everything else was left alone.
    pub taken_over: bool,
    /// Cgroups that are still there, `hierarchy:path`.
    pub left_over: Vec<String>,
    /// First step to last.
    pub took: Duration,
}

// === impl StepReport ===

impl StepReport {
    pub(super) fn done(step: &Step, took: Duration, result: Result<(), String>) -> Self {
        Self { op: step.op(), object: object_of(step), took, error: result.err() }
    }

    pub(super) fn skipped(step: &Step, reason: &'static str) -> Self {
        let error = Some(format!("not tried: {reason}"));
        Self { op: step.op(), object: object_of(step), took: Duration::ZERO, error }
    }
}

fn object_of(step: &Step) -> String {
    match step {
        Step::Kill { targets } => targets.first().map_or_else(String::new, |target| target.path.to_string()),
        Step::Remove { target } => target.place(),
        Step::Unmount { mount } => mount.target.display().to_string(),
        Step::ResetUnit { unit, .. } => unit.to_string(),
    }
}

// === impl Report ===

impl Report {
    /// Why a step must not be tried after those before it.
    pub(super) fn blocks(&self, step: &Step) -> Option<&'static str> {
        if self.kill_failed() {
            return Some("the kill did not end");
        }
        match step {
            Step::Unmount { .. } if !self.escaped.is_empty() => Some("a process that left may use it"),
            Step::Kill { .. } | Step::Remove { .. } | Step::Unmount { .. } | Step::ResetUnit { .. } => {
                self.taken_over.then_some("somebody uses the name again")
            }
        }
    }

    fn kill_failed(&self) -> bool {
        self.steps.iter().any(|step| step.op == "kill" && step.error.is_some())
    }

    /// What was done, in a line for people.
    pub fn summary(&self) -> String {
        let failed = self.reasons();
        let killed = match self.killed.len() {
            0 => String::new(),
            count => format!(", {count} process(es) killed"),
        };
        let outcome = self.outcome();
        if outcome == Outcome::Reaped {
            return format!("reaped{killed}");
        }
        format!("{}{killed}: {}", outcome.as_str(), failed.join("; "))
    }

    /// What kept it from being complete.
    pub fn reasons(&self) -> Vec<String> {
        let failed = self.steps.iter().filter_map(|step| step.error.clone());
        let escaped = self.escaped.iter().map(|escaped| {
            let Remaining { process, comm, state } = escaped;
            format!("process {process} {} ({state}) left the cgroup", comm.escape_debug())
        });
        failed.chain(escaped).collect()
    }

    /// The result in one word.
    pub fn outcome(&self) -> Outcome {
        if !self.left_over.is_empty() || self.kill_failed() {
            Outcome::Stuck
        } else if !self.escaped.is_empty() || self.steps.iter().any(|step| step.error.is_some()) {
            Outcome::Partial
        } else {
            Outcome::Reaped
        }
    }
}
