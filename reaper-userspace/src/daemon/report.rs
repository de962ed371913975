//! What a round means in numbers and in the log.

use std::collections::BTreeMap;

use super::clock;
use super::engine::{Judged, Round};
use super::listen::Heard;
use crate::audit::AuditError;
use crate::event::{Act, Occurrence};
use crate::fact::Subject;
use crate::ident::LeakId;
use crate::leak::{LeakKind, LeakState};
use crate::metrics::{AuditOp, KernelEvent, Metrics, RequestOutcome, RuntimeMethod};
use crate::probe::{Loss, Losses};
use crate::verdict::{Verdict, Veto};

/// A leak's kind and state, as last reported.
pub(super) type States = BTreeMap<LeakId, (LeakKind, LeakState)>;

/// Kind and state of one subject; `stuck` outranks what the look says. `None` for what is in use.
pub(super) fn state_of<S>(judged: &Judged<S>, stuck: bool) -> Option<(LeakKind, LeakState)> {
    let (kind, state) = match &judged.verdict {
        Verdict::Live(_) => return None,
        Verdict::Held { kind, state, .. } => (*kind, *state),
        Verdict::Leaked(proof) => (proof.kind(), LeakState::Confirmed),
    };
    Some((kind, if stuck { LeakState::Stuck } else { state }))
}

/// Logs a change of state, once.
pub(super) fn log_change<S: Subject>(judged: &Judged<S>, state: (LeakKind, LeakState)) {
    let (id, container, place) = (&judged.id, judged.sighting.container(), judged.sighting.place());
    let reasons = match &judged.verdict {
        Verdict::Held { vetoes, .. } => reasons(vetoes),
        Verdict::Live(_) | Verdict::Leaked(_) => String::new(),
    };
    if state.0 == LeakKind::Misplaced {
        tracing::warn!(leak = %id, container.id = %container, path = %place, kind = %state.0, reasons, "runs outside of its cgroup");
        return;
    }
    tracing::info!(leak = %id, container.id = %container, path = %place, kind = %state.0, reasons, "{}", state.1);
}

fn reasons(vetoes: &[Veto]) -> String {
    vetoes.iter().map(|veto| format!("{}: {}", veto.guard, veto.detail)).collect::<Vec<_>>().join("; ")
}

/// Counts what the kernel reported.
pub(super) fn count_events(metrics: &Metrics, events: &[Heard]) {
    for Heard { event, at, .. } in events {
        metrics.probe.events.inc(match event.what {
            Occurrence::CgroupMade { .. } => KernelEvent::CgroupMkdir,
            Occurrence::CgroupRemoved { .. } => KernelEvent::CgroupRmdir,
            Occurrence::CgroupPopulated { .. } => KernelEvent::CgroupPopulated,
            Occurrence::CgroupFrozen { .. } => KernelEvent::CgroupFreeze,
            Occurrence::Forked { .. } | Occurrence::Unidentified { act: Act::Forked, .. } => {
                KernelEvent::ProcessFork
            }
            Occurrence::Execed { .. } | Occurrence::Unidentified { act: Act::Execed, .. } => {
                KernelEvent::ProcessExec
            }
            Occurrence::Killed { .. } => KernelEvent::Signal,
            Occurrence::Exited { .. } | Occurrence::Unidentified { act: Act::Exited, .. } => {
                KernelEvent::ProcessExit
            }
        });
        metrics.probe.lag.observe(at.since(event.at).as_secs_f64());
    }
}

/// Counts what was lost since `before`.
pub(super) fn count_losses(metrics: &Metrics, before: Losses, now: Losses) {
    for (loss, count) in now.iter() {
        let reason = match loss {
            Loss::Undecodable => crate::metrics::Loss::Decode,
            Loss::TrackedFull | Loss::WatchFull | Loss::Skipped => crate::metrics::Loss::Kernel,
            Loss::Mkdir
            | Loss::Rmdir
            | Loss::Populated
            | Loss::Frozen
            | Loss::Fork
            | Loss::Exec
            | Loss::Exit
            | Loss::Kill => crate::metrics::Loss::RingbufFull,
        };
        metrics.probe.lost.add(reason, count.saturating_sub(before.get(loss)));
    }
}

/// Sets what a round showed.
pub(super) fn count_round(metrics: &Metrics, round: &Round, states: &States) {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    for kind in LeakKind::ALL {
        let of_kind = || states.values().filter(|(one, _)| one == kind);
        metrics.leak.tracked.set(*kind, number(of_kind().count()));
        for state in LeakState::ALL {
            let count = of_kind().filter(|(_, one)| one == state).count();
            metrics.leak.leaks.set((*kind, *state), number(count));
        }
        let processes = round.judged.iter().filter_map(|judged| match &judged.verdict {
            Verdict::Leaked(proof) if proof.kind() == *kind => Some(proof.members().count()),
            Verdict::Leaked(_) | Verdict::Live(_) | Verdict::Held { .. } => None,
        });
        metrics.leak.processes.set(*kind, number(processes.sum()));
    }
    metrics.leak.scan_duration.observe(clock::boot().since(round.at).as_secs_f64());
    metrics.leak.last_scan.set(seconds(clock::wall()));
    count_answers(metrics, round);
}

fn count_answers(metrics: &Metrics, round: &Round) {
    let count = |method, answered: bool| {
        let outcome = if answered { RequestOutcome::Ok } else { RequestOutcome::Error };
        metrics.runtime.requests.inc((method, outcome));
    };
    for health in round.look.containerds.values() {
        count(RuntimeMethod::ContainersList, health.unavailable().is_none());
    }
    let containers = round.judged.iter().map(|one| (one.sighting.runtimes(), one.sighting.shims()));
    let bundles = round.bundles.iter().map(|one| (one.sighting.runtimes(), one.sighting.shims()));
    let units = round.units.iter().map(|one| (one.sighting.runtimes(), one.sighting.shims()));
    for (runtimes, shims) in containers.chain(bundles).chain(units) {
        for answer in runtimes {
            count(RuntimeMethod::TasksGet, answer.task.unavailable().is_none());
            count(RuntimeMethod::ContainersGet, answer.record.unavailable().is_none());
        }
        for shim in shims {
            count(RuntimeMethod::ShimState, shim.task.unavailable().is_none());
        }
    }
}

/// Seconds since 1970, for gauges.
pub(super) fn seconds(time: jiff::Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

/// The metric's word for a failure to record.
pub(super) const fn audit_op(error: &AuditError) -> AuditOp {
    match error {
        AuditError::Open { .. }
        | AuditError::NotRegular { .. }
        | AuditError::InUse { .. }
        | AuditError::Lock { .. }
        | AuditError::Read { .. }
        | AuditError::Broken { .. }
        | AuditError::MoveAside { .. } => AuditOp::Open,
        AuditError::Sync { .. } => AuditOp::Sync,
        AuditError::Encode { .. }
        | AuditError::TooLong { .. }
        | AuditError::Write { .. }
        | AuditError::Poisoned { .. } => AuditOp::Write,
    }
}
