//! What may be done, and in which order.

use std::path::PathBuf;

use super::*;
use crate::fact::{MountFact, Sighting, sample};
use crate::ident::Lookup;
use crate::inventory::History;
use crate::leak::LeakKind;
use crate::policy::Budget;
use crate::time::BootTime;
use crate::verdict::{Freshness, Verdict, assess, conclude};

fn enforce() -> Policy {
    Policy { mode: Mode::Enforce, ..Policy::default() }
}

fn proof_of(sighting: &Sighting) -> LeakProof {
    let (policy, start) = (Policy::default(), BootTime::from_nanos(0));
    let history = History { first_seen: start, clean_since: Some(start), looks: 2 };
    let now = start.after(policy.grace).after(policy.grace);
    match conclude(sighting, assess(sighting, &policy, &Freshness::Fresh), &history, &policy, now) {
        Verdict::Leaked(proof) => *proof,
        other @ (Verdict::Live(_) | Verdict::Held { .. }) => panic!("not leaked: {other:#?}"),
    }
}

fn guards(sweep: &Sweep) -> Vec<Guard> {
    sweep.refused.iter().map(|refusal| refusal.veto.guard).collect()
}

#[test]
fn observe_is_the_default_and_permits_nothing() {
    let sweep = permit(vec![proof_of(&sample::half_created())], &Policy::default(), &Standing::default());
    assert!(sweep.permitted.is_empty());
    assert_eq!(guards(&sweep), [Guard::ModeObserve]);
}

#[test]
fn a_kind_can_stay_in_observe_by_itself() {
    let policy = Policy { observe_only: [LeakKind::Empty].into(), ..enforce() };
    let proofs = vec![proof_of(&sample::empty()), proof_of(&sample::half_created())];
    let sweep = permit(proofs, &policy, &Standing::default());
    assert_eq!(sweep.permitted.len(), 1);
    assert_eq!(guards(&sweep), [Guard::ModeObserve]);
}

#[test]
fn pause_and_a_dead_audit_log_refuse_everything() {
    let paused = Standing { paused: Some("maintenance".to_owned()), ..Standing::default() };
    let mute = Standing { audit_down: Some("no space left".to_owned()), ..Standing::default() };
    for (standing, guard) in [(paused, Guard::Paused), (mute, Guard::AuditUnavailable)] {
        let sweep = permit(vec![proof_of(&sample::empty())], &enforce(), &standing);
        assert_eq!(guards(&sweep), [guard]);
        assert!(sweep.permitted.is_empty());
    }
}

#[test]
fn the_budget_counts_what_was_reaped_before() {
    let policy = Policy { budget: Budget { per_minute: 3, ..Budget::default() }, ..enforce() };
    let proofs = vec![proof_of(&sample::half_created()); 3];
    let sweep = permit(proofs, &policy, &Standing { recent_reaps: 1, ..Standing::default() });
    assert_eq!(sweep.permitted.len(), 2);
    assert_eq!(guards(&sweep), [Guard::RateLimited]);
}

#[test]
fn one_sweep_has_a_budget_of_its_own() {
    let policy = Policy { budget: Budget { per_sweep: 2, ..Budget::default() }, ..enforce() };
    let sweep = permit(vec![proof_of(&sample::half_created()); 3], &policy, &Standing::default());
    assert_eq!((sweep.permitted.len(), guards(&sweep)), (2, vec![Guard::RateLimited]));
}

#[test]
fn a_storm_stops_every_reap_not_only_those_above_the_limit() {
    let standing = Standing { storm: Some("3 at once".to_owned()), ..Standing::default() };
    let sweep = permit(vec![proof_of(&sample::half_created()); 3], &enforce(), &standing);
    assert!(sweep.permitted.is_empty());
    assert_eq!(guards(&sweep), [Guard::Storm; 3]);
}

#[test]
fn an_empty_leak_is_never_signalled() {
    let plan = ReapPlan::new(proof_of(&sample::empty()));
    let ops: Vec<&str> = plan.steps().iter().map(Step::op).collect();
    assert_eq!(ops, ["rmdir"; 3]);
}

#[test]
fn processes_die_before_directories_go_before_mounts_innermost_first() {
    let mount = |mount_id, target: &str| MountFact {
        mount_id,
        unique_id: None,
        target: PathBuf::from(target),
        namespace_of: sample::key(200, 7),
    };
    let sighting = Sighting {
        mounts: Lookup::Found(vec![mount(1, "/b/rootfs"), mount(2, "/b/rootfs/proc")]),
        ..sample::half_created()
    };
    let plan = ReapPlan::new(proof_of(&sighting));
    let ops: Vec<&str> = plan.steps().iter().map(Step::op).collect();
    assert_eq!(ops, ["kill", "rmdir", "umount", "umount"]);
    let unmounted: Vec<u32> = plan
        .steps()
        .iter()
        .filter_map(|step| match step {
            Step::Unmount { mount } => Some(mount.mount_id),
            Step::Kill { .. } | Step::Remove { .. } | Step::ResetUnit { .. } => None,
        })
        .collect();
    assert_eq!(unmounted, [2, 1]);
}

#[test]
fn the_mounts_of_a_dead_bundle_go_innermost_first_and_its_directory_stays() {
    let (sighting, policy, start) = (sample::dead_bundle(), Policy::default(), BootTime::from_nanos(0));
    let history = History { first_seen: start, clean_since: Some(start), looks: 2 };
    let now = start.after(policy.grace).after(policy.grace);
    let assessment = assess(&sighting, &policy, &Freshness::Fresh);
    let Verdict::Leaked(proof) = conclude(&sighting, assessment, &history, &policy, now) else {
        panic!("not leaked");
    };
    let plan = ReapPlan::new(*proof);
    let inner_first = [sample::mount(78, "rootfs/data"), sample::mount(77, "rootfs")];
    assert_eq!(plan.steps(), inner_first.map(|mount| Step::Unmount { mount }));
    assert!(plan.id().as_str().starts_with("bu-"), "{}", plan.id());
}
