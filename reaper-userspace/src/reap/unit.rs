//! A failed scope: systemd is asked to forget it, if it is still that run of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::{Reap, Refused, Rehearsal, Report, StepReport, Timing, same_incident};
use crate::audit::Intent;
use crate::cgroupfs::Layout;
use crate::fact::UnitSighting;
use crate::ident::{InvocationId, UnitName};
use crate::kernel::chain;
use crate::plan::{ReapPlan, Step};
use crate::systemd::control::{Reset, reset_failed};
use crate::verdict::LeakProof;

// === impl UnitSighting ===

impl Reap for UnitSighting {
    /// Nothing is held: the invocation is compared directly before the call.
    type Armed = ReapPlan<Self>;

    fn arm(plan: ReapPlan<Self>, _layout: Arc<Layout>) -> Result<Self::Armed, Refused> {
        Ok(plan)
    }

    fn fire(
        plan: Self::Armed,
        fresh: &LeakProof<Self>,
        intent: &Intent,
        timing: Timing,
    ) -> Result<Report, Refused> {
        same_incident(plan.proof(), fresh)?;
        tracing::debug!(leak = %plan.id(), txn = intent.txn(), "reap begins");
        let mut report = Report::default();
        let started = (timing.now)();
        for step in plan.steps() {
            if let Step::ResetUnit { unit, invocation } = step {
                let result = reset(unit, *invocation, timing);
                let took = (timing.now)().since(started);
                report.left_over.extend(result.is_err().then(|| format!("unit:{unit}")));
                report.steps.push(StepReport::done(step, took, result));
            }
        }
        report.took = (timing.now)().since(started);
        Ok(report)
    }

    /// That it is failed, and the same run, is what the fresh proof says.
    fn rehearse(plan: Self::Armed, fresh: &LeakProof<Self>, _timing: Timing) -> Result<Rehearsal, Refused> {
        same_incident(plan.proof(), fresh)?;
        let step = |step: &Step| StepReport::done(step, Duration::ZERO, Ok(()));
        Ok(Rehearsal { steps: plan.steps().iter().map(step).collect(), members: vec![] })
    }
}

/// Called on a thread that may block, as every act is.
fn reset(unit: &UnitName, invocation: InvocationId, timing: Timing) -> Result<(), String> {
    let limit = timing.deadline.since((timing.now)());
    match Handle::current().block_on(reset_failed(unit, invocation, limit)) {
        Ok(Reset::Done | Reset::Gone) => Ok(()),
        Ok(Reset::Other) => Err(format!("another run of {unit} is there, it was left alone")),
        Err(error) => Err(chain(&error)),
    }
}
