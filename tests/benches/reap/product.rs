//! The product's act, with real records on a real disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reaper_userspace::audit::{After, Journal, Millis, Outcome, OutcomeBody, StepRecord};
use reaper_userspace::daemon::clock;
use reaper_userspace::plan::ReapPlan;
use reaper_userspace::reap::{Armed, Report, StepReport, Timing};
use reaper_userspace::verdict::LeakProof;
use tempfile::TempDir;

use crate::by_hand::{self, ByHand, intent_body};
use crate::view::View;

pub(crate) struct Product {
    journal: Journal,
    _directory: TempDir,
}

// === impl Product ===

impl Product {
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let (journal, _open) =
            Journal::open(&directory.path().join("audit.jsonl"), by_hand::node(), clock::stamp())?;
        Ok(Self { journal, _directory: directory })
    }

    /// How long the act took, and the act with both records.
    pub(crate) fn reap(&mut self, view: &View) -> Result<(Duration, Duration)> {
        let armed = Armed::open(ReapPlan::new(prove(view)?), Arc::clone(&view.layout))?;
        let fresh = prove(view)?;
        let body = intent_body(&fresh);
        let start = Instant::now();
        let intent = self.journal.intent(clock::stamp(), "leak".to_owned(), body)?;
        let begin = Instant::now();
        let report = armed.fire(&fresh, &intent, Timing::start(clock::boot))?;
        let act = begin.elapsed();
        self.journal.outcome(clock::stamp(), intent, outcome(&report))?;
        let audited = start.elapsed();
        ensure!(report.outcome() == Outcome::Reaped && !view.dir().exists(), "{report:#?}");
        Ok((act, audited))
    }
}

fn prove(view: &View) -> Result<LeakProof> {
    let (layout, cgroup) = (view.layout.as_ref(), view.path.clone());
    let leak = ByHand { layout, cgroup, mounts: vec![], server: by_hand::server() };
    leak.prove().map_err(anyhow::Error::msg)
}

fn outcome(report: &Report) -> OutcomeBody {
    OutcomeBody {
        steps: report.steps.iter().map(step).collect(),
        ..OutcomeBody::new(report.outcome(), After::Gone, report.took)
    }
}

fn step(step: &StepReport) -> StepRecord {
    StepRecord {
        op: step.op.to_owned(),
        path: Some(step.object.clone()),
        ms: Millis(step.took),
        ok: step.error.is_none(),
        error: step.error.clone(),
    }
}
