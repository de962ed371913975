//! Keeps every record below the length of a line, whatever the node's names and numbers are: a record that is too long
//! could not be written, and what cannot be recorded is not done.
//!
//! Long texts are cut, long lists keep their beginning and the count of the rest.

use super::before::ProcessRecord;
use super::record::{
    After, Body, Confirmed, IntentBody, Killed, OutcomeBody, RecoveredBody, StepRecord, Target, Trigger,
};

/// Processes of a list; the rest is counted.
pub(super) const MAX_PROCESSES: usize = 256;
/// Pieces of evidence, and steps. A plan has a step a hierarchy and one a mount, and a container may have many mounts.
const MAX_ROWS: usize = 128;
/// Bytes of a text that a process chose.
pub(super) const MAX_NAME: usize = 256;
/// Bytes of a sentence or of a path that is for people.
const MAX_SENTENCE: usize = 2048;
/// Bytes of the target's path, which the next start looks for: `PATH_MAX`.
const MAX_PATH: usize = 4096;
/// Cgroups of a target, one a hierarchy: more controllers than kernels have.
const MAX_CGROUPS: usize = 64;
/// Stands for the rest of a text; counts towards its bytes.
pub const ELLIPSIS: &str = "…";

/// The beginning of a text.
pub(super) fn short(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(ELLIPSIS.len()));
    text.get(..end).unwrap_or_default().to_owned() + ELLIPSIS
}

/// The same record, short enough.
pub(super) fn body(body: Body) -> Body {
    match body {
        Body::SegmentOpen | Body::DaemonStart { .. } | Body::Resume { .. } => body,
        Body::Pause { hold, mut body } => {
            sentence(&mut body.reason);
            Body::Pause { hold, body }
        }
        Body::DaemonStop { mut reason } => {
            sentence(&mut reason);
            Body::DaemonStop { reason }
        }
        Body::AuditReopened { mut reason } => {
            sentence(&mut reason);
            Body::AuditReopened { reason }
        }
        Body::LeakConfirmed { leak, body } => Body::LeakConfirmed { leak, body: confirmed(body) },
        Body::ReapIntent { leak, txn, body } => Body::ReapIntent { leak, txn, body: intent(body) },
        Body::ReapOutcome { leak, txn, target, body } => {
            Body::ReapOutcome { leak, txn, target: bounded(target), body: outcome(body) }
        }
        Body::ReapRecovered { leak, txn, target, body: RecoveredBody { after } } => {
            let body = RecoveredBody { after: what_is_left(after) };
            Body::ReapRecovered { leak, txn, target: bounded(target), body }
        }
    }
}

fn confirmed(mut body: Confirmed) -> Confirmed {
    evidence(&mut body.evidence, &mut body.evidence_omitted);
    trigger(&mut body.trigger);
    Confirmed { target: bounded(body.target), ..body }
}

fn intent(mut body: IntentBody) -> IntentBody {
    evidence(&mut body.evidence, &mut body.evidence_omitted);
    trigger(&mut body.trigger);
    cut(&mut body.before.processes, MAX_PROCESSES, &mut body.before.omitted);
    body.before.processes.iter_mut().for_each(process);
    IntentBody { target: bounded(body.target), ..body }
}

fn outcome(mut body: OutcomeBody) -> OutcomeBody {
    cut(&mut body.steps, MAX_ROWS, &mut body.steps_omitted);
    body.steps.iter_mut().for_each(step);
    body.reason.iter_mut().for_each(sentence);
    killed(&mut body.killed);
    killed(&mut body.bystanders);
    OutcomeBody { after: what_is_left(body.after), ..body }
}

fn bounded(mut target: Target) -> Target {
    target.cgroup_ids.truncate(MAX_CGROUPS);
    target.path = short(&target.path, MAX_PATH);
    target
}

fn evidence(list: &mut Vec<super::Evidence>, omitted: &mut usize) {
    cut(list, MAX_ROWS, omitted);
    for one in list {
        sentence(&mut one.what);
    }
}

fn trigger(trigger: &mut Trigger) {
    if let Some(forced) = &mut trigger.forced {
        sentence(&mut forced.reason);
    }
}

fn step(step: &mut StepRecord) {
    step.path.iter_mut().for_each(sentence);
    step.error.iter_mut().for_each(sentence);
}

fn killed(killed: &mut Killed) {
    cut(&mut killed.processes, MAX_PROCESSES, &mut killed.omitted);
    killed.processes.iter_mut().for_each(|process| process.comm = short(&process.comm, MAX_NAME));
}

fn process(process: &mut ProcessRecord) {
    process.comm = short(&process.comm, MAX_NAME);
    for text in [&mut process.exe, &mut process.argv0].into_iter().flatten() {
        *text = short(text, MAX_NAME);
    }
}

fn what_is_left(after: After) -> After {
    match after {
        After::Gone => After::Gone,
        After::Remains { what } => After::Remains { what: short(&what, MAX_SENTENCE) },
        After::Unknown { reason } => After::Unknown { reason: short(&reason, MAX_SENTENCE) },
    }
}

fn sentence(text: &mut String) {
    *text = short(text, MAX_SENTENCE);
}

fn cut<T>(list: &mut Vec<T>, limit: usize, omitted: &mut usize) {
    *omitted = omitted.saturating_add(list.len().saturating_sub(limit));
    list.truncate(limit);
}
