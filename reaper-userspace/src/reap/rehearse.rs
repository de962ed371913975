//! The same way as an act, without the calls that change something.
//!
//! The members are held and proven, strangers are found, cgroups and mounts are compared with the plan. Nothing is
//! frozen, so what is listed may have forked by the time of a real act.

use std::collections::BTreeSet;

use super::kill::never;
use super::members::{Early, hold, strangers};
use super::{Armed, Held, Refused, StepReport, Timing, same_incident};
use crate::fact::MountFact;
use crate::ident::ProcessKey;
use crate::plan::{Step, Target};
use crate::verdict::LeakProof;

/// What an act would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsal {
    /// Each step, with what would keep it from being done.
    pub steps: Vec<StepReport>,
    /// Who would be killed.
    pub members: Vec<ProcessKey>,
}

// === impl Armed ===

impl Armed {
    /// Goes through the plan and changes nothing. `fresh` as for [`Armed::fire`].
    pub(super) fn rehearse(self, fresh: &LeakProof, timing: Timing) -> Result<Rehearsal, Refused> {
        same_incident(self.plan.proof(), fresh)?;
        let mut rehearsal = Rehearsal::default();
        for step in self.plan.steps() {
            let started = (timing.now)();
            let result = match step {
                Step::Kill { targets } => self.members(targets, fresh, &mut rehearsal.members),
                Step::Remove { target } => self.removable(target),
                Step::Unmount { .. } | Step::ResetUnit { .. } => known(step, fresh.sighting().mounts.found()),
            };
            let took = (timing.now)().since(started);
            rehearsal.steps.push(StepReport::done(step, took, result));
        }
        Ok(rehearsal)
    }

    fn members(
        &self,
        targets: &[Target],
        fresh: &LeakProof,
        found: &mut Vec<ProcessKey>,
    ) -> Result<(), String> {
        let wanted: BTreeSet<_> = targets.iter().map(|target| target.cgroup).collect();
        let trees: Vec<&Held> = self.held.iter().filter(|held| wanted.contains(&held.dir.cgroup())).collect();
        let members = hold(&trees, Early::new(), || ())?;
        let mut judged: BTreeSet<ProcessKey> = fresh.members().collect();
        if let Some(stranger) = strangers(&members, &mut judged).first() {
            return Err(format!("process {stranger} came from outside after the verdict"));
        }
        for member in &members {
            never(member.key())?;
            found.push(member.key());
        }
        Ok(())
    }

    fn removable(&self, target: &Target) -> Result<(), String> {
        match self.held.iter().find(|held| held.dir.cgroup() == target.cgroup) {
            Some(held) if held.dir.is_removed() => Err("it is gone".to_owned()),
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether the last look found the mount of this step.
pub(super) fn known(step: &Step, mounts: Option<&Vec<MountFact>>) -> Result<(), String> {
    match step {
        Step::Unmount { mount } if !mounts.is_some_and(|mounts| mounts.contains(mount)) => {
            Err("the last look did not find it".to_owned())
        }
        Step::Unmount { .. } | Step::Kill { .. } | Step::Remove { .. } | Step::ResetUnit { .. } => Ok(()),
    }
}
