//! Facts, proofs and reports in the words of the audit log.

use std::time::Duration;

use super::holds::Hold;
use crate::audit::{
    After, Answer, Before, Confirmed, Evidence, IntentBody, Killed, KilledProcess, Millis, OutcomeBody,
    PauseBody, StepRecord, Target, Tool, Trigger,
};
use crate::fact::Subject;
use crate::ident::ProcessKey;
use crate::leak::{LeakKind, Outcome};
use crate::policy::{Mode, Policy};
use crate::reap::{Report, StepReport};
use crate::time::BootTime;
use crate::verdict::{self, LeakProof, Veto};

/// The program, as in `daemon.start` and every intent.
pub(super) fn tool(policy: &Policy) -> Tool {
    let mode = match policy.mode {
        Mode::Observe => "observe",
        Mode::Enforce => "enforce",
    };
    Tool {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config: format!("grace={:?}", policy.grace),
        mode: mode.to_owned(),
    }
}

/// A time without acts.
pub(super) fn pause(hold: Hold) -> PauseBody {
    let Hold { reason, since, until, by } = hold;
    PauseBody { reason, since, until, person: by }
}

/// What is acted on.
pub(super) fn target<S: Subject>(kind: LeakKind, sighting: &S) -> Target {
    let container = sighting.container();
    Target {
        kind,
        cgroup_ids: sighting.roots(),
        path: sighting.place(),
        container: container.id.clone(),
        runtime_ns: container.namespace.clone(),
    }
}

fn evidence(evidence: &[verdict::Evidence], at: BootTime) -> Vec<Evidence> {
    evidence
        .iter()
        .map(|one| Evidence { source: one.source.as_str().to_owned(), what: one.what.clone(), at })
        .collect()
}

/// A proven leak.
pub(super) fn confirmed<S: Subject>(
    proof: &LeakProof<S>,
    trigger: Trigger,
    detection: Duration,
    at: BootTime,
) -> Confirmed {
    Confirmed {
        trigger,
        target: target(proof.kind(), proof.sighting()),
        evidence: evidence(proof.evidence(), at),
        evidence_omitted: 0,
        detection_ms: Millis(detection),
    }
}

/// An act that is about to begin.
pub(super) fn intent<S: Subject>(
    proof: &LeakProof<S>,
    policy: &Policy,
    trigger: Trigger,
    at: BootTime,
) -> IntentBody {
    let sighting = proof.sighting();
    let populated = Answer::from(&sighting.populated());
    IntentBody {
        tool: tool(policy),
        trigger,
        target: target(proof.kind(), sighting),
        evidence: evidence(proof.evidence(), at),
        evidence_omitted: 0,
        before: Before::new(populated, Answer::from(&sighting.frozen()), sighting.processes()),
    }
}

/// An act that ended.
pub(super) fn outcome(report: &Report) -> OutcomeBody {
    let outcome = report.outcome();
    let after =
        if report.left_over.is_empty() { After::Gone } else { After::Remains { what: remains(report) } };
    OutcomeBody {
        steps: report.steps.iter().map(step).collect(),
        killed: killed(&report.killed, report),
        bystanders: killed(&report.bystanders, report),
        reason: (outcome != Outcome::Reaped).then(|| report.reasons().join("; ")),
        ..OutcomeBody::new(outcome, after, report.took)
    }
}

fn killed(processes: &[ProcessKey], report: &Report) -> Killed {
    let of = |key: &ProcessKey| KilledProcess {
        pid: key.tgid.get(),
        start: key.start.get(),
        comm: report.comms.get(key).cloned().unwrap_or_default(),
    };
    Killed { processes: processes.iter().map(of).collect(), ..Killed::default() }
}

/// An act that a guard stopped at the last check, after its intent was recorded.
pub(super) fn stopped(veto: &Veto) -> OutcomeBody {
    let after = After::Unknown { reason: "nothing was done".to_owned() };
    let reason = Some(format!("{}: {}", veto.guard, veto.detail));
    OutcomeBody { reason, ..OutcomeBody::new(Outcome::Vetoed, after, Duration::ZERO) }
}

fn remains(report: &Report) -> String {
    let processes = report.remaining.iter().map(|process| {
        format!("process {} {} ({})", process.process, process.comm.escape_debug(), process.state)
    });
    report.left_over.iter().cloned().chain(processes).collect::<Vec<_>>().join(", ")
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
