//! A dead bundle: its mounts are taken away, innermost first; the directory is left to containerd.

use std::sync::Arc;
use std::time::Duration;

use super::rehearse::known;
use super::unmount::unmount;
use super::{Reap, Refused, Rehearsal, Report, StepReport, Timing, same_incident};
use crate::audit::Intent;
use crate::cgroupfs::Layout;
use crate::fact::{BundleSighting, MountFact};
use crate::plan::{ReapPlan, Step};
use crate::verdict::LeakProof;

// === impl BundleSighting ===

impl Reap for BundleSighting {
    /// Nothing is held: a mount is checked by its ids each time it is touched.
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
        let started = (timing.now)();
        let mut report = Report::default();
        for step in plan.steps() {
            if let Step::Unmount { mount } = step {
                let began = (timing.now)();
                let result = unmount(mount, fresh.sighting().mounts.found(), timing);
                let took = (timing.now)().since(began);
                report.left_over.extend(result.is_err().then(|| mounted_at(mount)));
                report.steps.push(StepReport::done(step, took, result));
            }
        }
        report.took = (timing.now)().since(started).max(Duration::from_nanos(1));
        Ok(report)
    }

    fn rehearse(plan: Self::Armed, fresh: &LeakProof<Self>, _timing: Timing) -> Result<Rehearsal, Refused> {
        same_incident(plan.proof(), fresh)?;
        let mounts = fresh.sighting().mounts.found();
        let step = |step: &Step| StepReport::done(step, Duration::ZERO, known(step, mounts));
        Ok(Rehearsal { steps: plan.steps().iter().map(step).collect(), members: vec![] })
    }
}

fn mounted_at(mount: &MountFact) -> String {
    format!("mount:{}", mount.target.display())
}
