//! What became of a reap.

use std::time::Duration;

use serde::Serialize;

use crate::audit::Outcome;
use crate::ident::ProcessKey;
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
    /// Whether `cgroup.kill` was used; pidfds otherwise.
    pub by_cgroup_kill: bool,
    /// Processes killed that were neither judged nor descend from one that was. Must stay empty.
    pub bystanders: Vec<ProcessKey>,
    /// Processes that did not end.
    pub remaining: Vec<Remaining>,
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

    pub(super) fn skipped(step: &Step, reason: &str) -> Self {
        let error = Some(format!("not tried: {reason}"));
        Self { op: step.op(), object: object_of(step), took: Duration::ZERO, error }
    }
}

fn object_of(step: &Step) -> String {
    match step {
        Step::Kill { targets } => targets.first().map_or_else(String::new, |target| target.path.to_string()),
        Step::Remove { target } => format!("{}:{}", target.hierarchy_name, target.path),
        Step::Unmount { mount } => mount.target.display().to_string(),
    }
}

// === impl Report ===

impl Report {
    /// Why the next steps must not be tried: a kill that did not end everything.
    pub(super) fn blocked(&self) -> Option<&'static str> {
        let kill_failed = self.steps.iter().any(|step| step.op == "kill" && step.error.is_some());
        kill_failed.then_some("the kill did not end")
    }

    /// What was done, in a line for people.
    pub fn summary(&self) -> String {
        let failed: Vec<&str> = self.steps.iter().filter_map(|step| step.error.as_deref()).collect();
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

    /// The result in one word.
    pub fn outcome(&self) -> Outcome {
        if !self.left_over.is_empty() || self.blocked().is_some() {
            Outcome::Stuck
        } else if self.steps.iter().any(|step| step.error.is_some()) {
            Outcome::Partial
        } else {
            Outcome::Reaped
        }
    }
}
