//! Turns proofs into ordered steps, within what the operator permits.
//!
//! `permit(proofs, standing) -> Sweep`. Pure: the executor interprets steps and decides nothing. The guards here
//! are about permission (mode, pause, budget, storm, audit); whether something leaked was settled in `verdict`.
//!
//! # Invariants
//! - A plan is made from a [`LeakProof`] only.
//! - Cgroups are removed descendants first, in every hierarchy that has them.
//! - No more plans than the budget allows; none in a storm, a pause, or without a durable audit log.

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::fact::{
    BundleSighting, Controllers, MisplacedSighting, MountFact, Sighting, Subject, UnitFact, UnitSighting,
};
use crate::ident::{CgroupPath, CgroupRef, InvocationId, LeakId, UnitName};
use crate::leak::Guard;
use crate::policy::{Budget, Mode, Policy};
use crate::verdict::{LeakProof, Veto};

/// What v2, which has no name of its own, is called.
pub const UNIFIED: &str = "v2";

/// One cgroup tree to act on, by the identity of its root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    /// The root.
    pub cgroup: CgroupRef,
    /// Where it was.
    pub path: CgroupPath,
    /// What the hierarchy is for.
    pub controllers: Controllers,
    /// The hierarchy's name, for records.
    pub hierarchy_name: String,
}

/// One step of a reap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum Step {
    /// Kill every member, frozen ones included, leave no freezer closed, and wait until nothing is populated.
    Kill {
        /// The freezer's tree on v1 and hybrid, v2's tree, or both.
        targets: Vec<Target>,
    },
    /// Remove a tree, descendants first.
    Remove {
        /// The tree.
        target: Target,
    },
    /// Unmount what the bundle's rootfs still has mounted.
    Unmount {
        /// One mount.
        mount: MountFact,
    },
    /// Make systemd forget that a scope failed.
    ResetUnit {
        /// Its name.
        unit: UnitName,
        /// Which run of it.
        invocation: InvocationId,
    },
}

/// What to do about one leak, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[must_use = "a plan that nobody executes or shows was made for nothing"]
pub struct ReapPlan<S = Sighting> {
    id: LeakId,
    proof: LeakProof<S>,
    steps: Vec<Step>,
}

/// What bears on permission, apart from the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Why acting is paused, if it is.
    pub paused: Option<String>,
    /// Why the audit log cannot take a durable record, if it cannot.
    pub audit_down: Option<String>,
    /// Why there are too many leaks at once to believe in them, if there are.
    pub storm: Option<String>,
    /// Reaps begun within the last sixty seconds.
    pub recent_reaps: u32,
    /// Reaps begun since the last look.
    pub swept: u32,
}

/// A subject that something can be done about.
pub trait Reapable: Subject {
    /// What to do, in order.
    fn steps(proof: &LeakProof<Self>) -> Vec<Step>;
}

/// One proof that was not permitted an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal<S = Sighting> {
    /// The plan as it would be carried out.
    pub plan: ReapPlan<S>,
    /// Why it is not.
    pub veto: Veto,
}

/// What one sweep may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep<S = Sighting> {
    /// To be carried out, in order.
    pub permitted: Vec<ReapPlan<S>>,
    /// To be shown only.
    pub refused: Vec<Refusal<S>>,
}

/// Plans every proof and sorts the plans by whether they may be carried out.
pub fn permit<S: Reapable>(proofs: Vec<LeakProof<S>>, policy: &Policy, standing: &Standing) -> Sweep<S> {
    let Budget { per_minute, per_sweep, .. } = policy.budget;
    let mut left =
        per_minute.saturating_sub(standing.recent_reaps).min(per_sweep.saturating_sub(standing.swept));
    let mut sweep = Sweep { permitted: vec![], refused: vec![] };
    for proof in proofs {
        let veto = forbidden(&proof, policy, standing).or_else(|| {
            let used_up = || format!("{per_minute} reaps a minute, {per_sweep} a sweep are used up");
            (left == 0).then(|| veto(Guard::RateLimited, used_up()))
        });
        let plan = ReapPlan::new(proof);
        if let Some(veto) = veto {
            sweep.refused.push(Refusal { plan, veto });
        } else {
            left = left.saturating_sub(1);
            sweep.permitted.push(plan);
        }
    }
    sweep
}

fn forbidden<S>(proof: &LeakProof<S>, policy: &Policy, standing: &Standing) -> Option<Veto> {
    if policy.mode_of(proof.kind()) == Mode::Observe {
        return Some(veto(Guard::ModeObserve, format!("{} is in observe mode", proof.kind())));
    }
    if let Some(reason) = &standing.paused {
        return Some(veto(Guard::Paused, reason.clone()));
    }
    if let Some(reason) = &standing.audit_down {
        return Some(veto(Guard::AuditUnavailable, reason.clone()));
    }
    standing.storm.as_ref().map(|reason| veto(Guard::Storm, reason.clone()))
}

const fn veto(guard: Guard, detail: String) -> Veto {
    Veto { guard, detail, ready_at: None }
}

// === impl Step ===

impl Step {
    /// The step's word in records and metrics.
    pub const fn op(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::Remove { .. } => "rmdir",
            Self::Unmount { .. } => "umount",
            Self::ResetUnit { .. } => "reset_unit",
        }
    }
}

// === impl Target ===

impl Target {
    /// Hierarchy and path, for people: `freezer:/a/b`, `v2:/a/b`.
    pub fn place(&self) -> String {
        let name = if self.hierarchy_name.is_empty() { UNIFIED } else { &self.hierarchy_name };
        format!("{name}:{}", self.path)
    }
}

// === impl Sighting ===

impl Reapable for Sighting {
    fn steps(proof: &LeakProof<Self>) -> Vec<Step> {
        let sighting = proof.sighting();
        let targets: Vec<Target> = sighting
            .trees
            .iter()
            .filter_map(|tree| {
                let root = tree.root()?;
                Some(Target {
                    cgroup: root.cgroup,
                    path: root.path.clone(),
                    controllers: tree.controllers,
                    hierarchy_name: tree.hierarchy_name.clone(),
                })
            })
            .collect();
        let mut steps = vec![];
        if proof.kind().has_processes() {
            let kill = targets.iter().filter(|target| target.controllers != Controllers::Other);
            steps.push(Step::Kill { targets: kill.cloned().collect() });
        }
        steps.extend(targets.into_iter().map(|target| Step::Remove { target }));
        if proof.kind().has_processes() {
            steps.extend(unmounts(sighting.mounts.found()));
        }
        steps
    }
}

/// Innermost first.
fn unmounts(mounts: Option<&Vec<MountFact>>) -> impl Iterator<Item = Step> + '_ {
    mounts.into_iter().flatten().rev().cloned().map(|mount| Step::Unmount { mount })
}

// === impl BundleSighting ===

impl Reapable for BundleSighting {
    /// The directory stays: containerd's next start removes it, in about ten milliseconds, once nothing is mounted.
    fn steps(proof: &LeakProof<Self>) -> Vec<Step> {
        unmounts(proof.sighting().mounts.found()).collect()
    }
}

// === impl UnitSighting ===

impl Reapable for UnitSighting {
    fn steps(proof: &LeakProof<Self>) -> Vec<Step> {
        let UnitFact { name, invocation, .. } = &proof.sighting().unit;
        vec![Step::ResetUnit { unit: name.clone(), invocation: *invocation }]
    }
}

// === impl MisplacedSighting ===

impl Reapable for MisplacedSighting {
    /// It lives.
    fn steps(_proof: &LeakProof<Self>) -> Vec<Step> {
        vec![]
    }
}

// === impl ReapPlan ===

impl<S: Reapable> ReapPlan<S> {
    /// The plan for a proven leak.
    pub fn new(proof: LeakProof<S>) -> Self {
        let (id, steps) = (proof.sighting().id(), S::steps(&proof));
        Self { id, proof, steps }
    }
}

impl<S> ReapPlan<S> {
    /// The leak's short name.
    pub const fn id(&self) -> &LeakId {
        &self.id
    }

    /// What the plan rests on.
    pub const fn proof(&self) -> &LeakProof<S> {
        &self.proof
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}
