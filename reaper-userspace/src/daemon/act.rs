//! One act: hold, prove again, record the intent, reap, record the outcome.
//!
//! The order is the protocol: cgroups are held open by identity *before* the second proof is made, so that what was
//! proven is what is held; and the intent is durable before the first step.

use std::path::Path;
use std::time::Duration;

use crate::audit::{AuditError, Intent, Journal, Trigger};
use crate::ident::ContainerKey;
use crate::leak::{Guard, Outcome};
use crate::plan::ReapPlan;
use crate::reap::{Reap, Refused, Rehearsal, Report, Timing};
use crate::verdict::{Freshness, Veto};

use super::engine::{Engine, Seek};
use super::lock::{self, Alone};
use super::{clock, records};

/// How old the second proof may be when the first step is taken: a slow disk holds up the intent, and the node goes
/// on meanwhile.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// How an act ended.
#[derive(Debug)]
pub enum Acted {
    /// The steps were carried out; the report says how far.
    Done {
        /// What was done.
        report: Box<Report>,
        /// The result.
        outcome: Outcome,
        /// The outcome could not be recorded: nothing more must be done.
        unrecorded: Option<Unrecorded>,
    },
    /// A guard held at the last check; nothing was touched.
    Stopped(Veto),
    /// The act, or that a guard stopped it, could not be recorded; nothing was touched.
    Unrecordable(AuditError),
}

/// The end of an act that is not on record.
#[derive(Debug)]
pub struct Unrecorded {
    /// Why.
    pub error: AuditError,
    /// The act.
    pub txn: u64,
}

/// Carries one plan out, alone.
pub async fn carry_out<S: Seek + Reap>(
    engine: &mut Engine,
    journal: &mut Journal,
    plan: ReapPlan<S>,
    trigger: Trigger,
    freshness: &Freshness,
    _alone: &Alone,
) -> Acted {
    let container: ContainerKey = plan.proof().sighting().container().clone();
    let leak = plan.id().to_string();
    let armed = match S::arm(plan, engine.layout()) {
        Ok(armed) => armed,
        Err(refused) => return Acted::Stopped(veto_of(&refused)),
    };
    let fresh = match engine.recheck::<S>(&container, freshness).await {
        Ok(proof) => proof,
        Err(veto) => return Acted::Stopped(veto),
    };
    let stamp = clock::stamp();
    let body = records::intent(&fresh, engine.policy(), trigger, stamp.boot);
    let intent = match journal.intent(stamp, leak, body) {
        Ok(intent) => intent,
        Err(error) => return Acted::Unrecordable(error),
    };
    if let Some(veto) = stale(clock::boot().since(stamp.boot)) {
        return close(journal, intent, veto);
    }
    // Killing and removing block; the reader of events and the metrics go on meanwhile.
    let fired = tokio::task::spawn_blocking(move || {
        let result = S::fire(armed, &fresh, &intent, Timing::start(clock::boot));
        (result, intent)
    });
    let Ok((result, intent)) = fired.await else {
        // The intent stays open in the log and is closed at the next start, which is what it is for.
        let detail = "the act ended abnormally; its intent stays open".to_owned();
        return Acted::Stopped(Veto { guard: Guard::AuditUnavailable, detail, ready_at: None });
    };
    match result {
        Ok(report) => {
            let (txn, outcome) = (intent.txn(), report.outcome());
            let recorded = journal.outcome(clock::stamp(), intent, records::outcome(&report));
            let unrecorded = recorded.err().map(|error| Unrecorded { error, txn });
            Acted::Done { report: Box::new(report), outcome, unrecorded }
        }
        Err(refused) => close(journal, intent, veto_of(&refused)),
    }
}

/// The same up to the last calls, which are left out; nothing is recorded.
pub async fn rehearse<S: Seek + Reap>(
    engine: &mut Engine,
    plan: ReapPlan<S>,
    freshness: &Freshness,
) -> Result<Rehearsal, Veto> {
    let container: ContainerKey = plan.proof().sighting().container().clone();
    let armed = S::arm(plan, engine.layout()).map_err(|refused| veto_of(&refused))?;
    let fresh = engine.recheck(&container, freshness).await?;
    S::rehearse(armed, &fresh, Timing::start(clock::boot)).map_err(|refused| veto_of(&refused))
}

/// Waits until nobody else acts on this node's behalf.
pub async fn wait_for_others(state_dir: &Path) -> Result<Alone, Veto> {
    let busy = |detail| Veto { guard: Guard::Paused, detail, ready_at: None };
    match lock::alone(state_dir).await {
        Ok(Some(alone)) => Ok(alone),
        Ok(None) => Err(busy("another cgroup-reaper is acting and does not end".to_owned())),
        Err(error) => Err(busy(format!("cannot lock {}/act.lock: {error}", state_dir.display()))),
    }
}

/// Records that a guard held at the last check.
fn close(journal: &mut Journal, intent: Intent, veto: Veto) -> Acted {
    match journal.outcome(clock::stamp(), intent, records::stopped(&veto)) {
        Ok(()) => Acted::Stopped(veto),
        Err(error) => Acted::Unrecordable(error),
    }
}

fn stale(age: Duration) -> Option<Veto> {
    let detail = || format!("the intent took {age:.1?} to record, the proof is too old");
    (age > FRESH_FOR).then(|| Veto { guard: Guard::SourceUnavailable, detail: detail(), ready_at: None })
}

fn veto_of(refused: &Refused) -> Veto {
    let guard = match refused {
        Refused::IdentityChanged(_) => Guard::IdentityChanged,
        Refused::NotHeld { .. } | Refused::NoHierarchy(_) | Refused::NoThread(_) => Guard::SourceUnavailable,
    };
    Veto { guard, detail: refused.to_string(), ready_at: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_that_waited_for_the_disk_is_no_proof() {
        assert_eq!(stale(FRESH_FOR), None);
        let veto = stale(FRESH_FOR.saturating_mul(2)).unwrap();
        // Not the log's fault: the next sweep may act.
        assert_eq!(veto.guard, Guard::SourceUnavailable);
    }
}
