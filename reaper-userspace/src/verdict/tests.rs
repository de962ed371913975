//! The decision table, row by row: one row for every rule and one for every veto.

use std::path::PathBuf;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::fact::sample::{self, answer, half_created};
use crate::fact::{
    Controllers, Ownership, ProcessEnd, Provenance, RuncState, RuntimeAnswer, ServerFact, TaskStatus,
};
use crate::ident::{CgroupId, CgroupPath, CgroupRef, Hierarchy, Lookup};
use crate::inventory::{Inventory, Look};
use crate::leak::Source;

const NOW: BootTime = BootTime::from_nanos(2_000_000_000_000);

fn old() -> History {
    History { first_seen: BootTime::from_nanos(0), clean_since: Some(BootTime::from_nanos(0)), looks: 2 }
}

fn judge(sighting: &Sighting) -> Verdict {
    let policy = Policy::default();
    conclude(sighting, assess(sighting, &policy, &Freshness::Fresh), &old(), &policy, NOW)
}

fn guards_of(verdict: &Verdict) -> Vec<Guard> {
    match verdict {
        Verdict::Held { vetoes, .. } => vetoes.iter().map(|veto| veto.guard).collect(),
        Verdict::Live(_) | Verdict::Leaked(_) => vec![],
    }
}

#[track_caller]
fn assert_leaked(sighting: &Sighting, kind: LeakKind, cause: Cause) {
    match judge(sighting) {
        Verdict::Leaked(proof) => assert_eq!((proof.kind(), proof.cause()), (kind, cause)),
        other @ (Verdict::Live(_) | Verdict::Held { .. }) => panic!("not leaked: {other:#?}"),
    }
}

#[track_caller]
fn assert_held_by(sighting: &Sighting, guard: Guard) {
    let verdict = judge(sighting);
    assert!(guards_of(&verdict).contains(&guard), "{guard} does not hold: {verdict:#?}");
}

fn with_runtime(change: impl Fn(&mut RuntimeAnswer)) -> Sighting {
    let mut answer = answer();
    change(&mut answer);
    Sighting { runtimes: vec![answer], ..half_created() }
}

fn unavailable<T>() -> Lookup<T> {
    Lookup::Unavailable("deadline exceeded".to_owned())
}

// --- what is a leak ---------------------------------------------------------------------------------------------

#[test]
fn a_create_that_died_before_its_state_was_saved_leaks_its_init() {
    assert_leaked(&half_created(), LeakKind::HalfCreated, Cause::CreateKilled);
}

#[test]
fn the_same_with_only_the_record_left_is_a_leak_too() {
    let sighting = Sighting {
        provenance: Provenance::Record { address: sample::ADDRESS.to_owned() },
        bundle: Lookup::NotFound,
        ..half_created()
    };
    assert_leaked(&sighting, LeakKind::HalfCreated, Cause::CreateKilled);
}

#[test]
fn processes_whose_recorded_init_is_dead_are_orphaned() {
    assert_leaked(&sample::orphaned(), LeakKind::Orphaned, Cause::DeleteFailed);
}

#[test]
fn a_living_init_that_nobody_knows_any_more_is_orphaned() {
    let mut sighting = sample::orphaned();
    sighting.runc_state = living_init();
    sighting.runtimes[0].record = Lookup::NotFound;
    assert_leaked(&sighting, LeakKind::Orphaned, Cause::ShimDead);
}

#[test]
fn unpopulated_directories_are_empty_even_with_the_record_there() {
    assert_leaked(&sample::empty(), LeakKind::Empty, Cause::CreateKilled);
}

#[test]
fn a_half_created_container_of_a_living_pod_shim_that_denies_it_is_a_leak() {
    let sighting = Sighting {
        shims: vec![sample::shim_answer(Lookup::NotFound)],
        supervisors: vec![sample::shim()],
        ..half_created()
    };
    assert_leaked(&sighting, LeakKind::HalfCreated, Cause::CreateKilled);
}

// --- what is live -----------------------------------------------------------------------------------------------

#[test]
fn a_task_in_any_state_is_live() {
    for status in [TaskStatus::Unknown, TaskStatus::Created, TaskStatus::Stopped, TaskStatus::Paused] {
        let sighting = with_runtime(|answer| answer.task = Lookup::Found(status));
        assert!(matches!(judge(&sighting), Verdict::Live(_)), "{status:?}");
        let by_shim = Sighting { shims: vec![sample::shim_answer(Lookup::Found(status))], ..half_created() };
        assert!(matches!(judge(&by_shim), Verdict::Live(_)), "{status:?} by the shim");
    }
}

#[test]
fn a_task_of_a_foreign_containerd_is_live_too() {
    let mut sighting = half_created();
    sighting.runtimes.push(RuntimeAnswer {
        ownership: Ownership::Foreign,
        task: Lookup::Found(TaskStatus::Running),
        ..answer()
    });
    assert!(matches!(judge(&sighting), Verdict::Live(_)));
}

// --- one row for every guard ------------------------------------------------------------------------------------

#[test]
fn an_unanswered_question_always_vetoes() {
    let mut cases = vec![
        with_runtime(|answer| answer.server = unavailable()),
        with_runtime(|answer| answer.task = unavailable()),
        with_runtime(|answer| answer.record = unavailable()),
        with_runtime(|answer| answer.overlapping = unavailable()),
        Sighting { shims: vec![sample::shim_answer(unavailable())], ..half_created() },
        Sighting { bundle: unavailable(), ..half_created() },
        Sighting { runc_state: unavailable(), ..half_created() },
        Sighting { mounts: unavailable(), ..half_created() },
        Sighting { holds_self: unavailable(), ..half_created() },
        Sighting { unreadable: vec!["freezer: EIO".to_owned()], ..half_created() },
        Sighting { runtimes: vec![], ..half_created() },
    ];
    let spoiled_trees: [fn(&mut crate::fact::CgroupTree); 3] = [
        |tree| tree.populated = unavailable(),
        |tree| tree.nodes[0].members = unavailable(),
        |tree| tree.nodes[0].freeze = unavailable(),
    ];
    for spoil in spoiled_trees {
        for mut sighting in [half_created(), sample::empty()] {
            spoil(&mut sighting.trees[0]);
            cases.push(sighting);
        }
    }
    for sighting in cases {
        assert_held_by(&sighting, Guard::SourceUnavailable);
    }
}

#[test]
fn only_foreign_answers_prove_nothing() {
    let sighting = with_runtime(|answer| {
        answer.ownership = Ownership::Foreign;
        answer.record = Lookup::NotFound;
    });
    assert_held_by(&sighting, Guard::SourceUnavailable);
}

#[test]
fn another_containers_record_on_the_same_cgroup_vetoes() {
    let sighting = with_runtime(|answer| answer.overlapping = Lookup::Found(vec![sample::container()]));
    assert_held_by(&sighting, Guard::KnownToRuntime);
}

#[test]
fn a_shim_above_a_member_that_did_not_deny_it_vetoes() {
    let sighting = Sighting { supervisors: vec![sample::shim()], ..half_created() };
    assert_held_by(&sighting, Guard::KnownToRuntime);
}

#[test]
fn a_running_command_vetoes_wherever_it_was_found() {
    let named = Sighting { in_flight: vec![sample::command("create")], ..half_created() };
    assert_held_by(&named, Guard::InFlight);
    let above = Sighting { supervisors: vec![sample::command("start")], ..half_created() };
    assert_held_by(&above, Guard::InFlight);
}

fn living_init() -> Lookup<RuncState> {
    sample::orphaned().runc_state.map(|state| RuncState { init_alive: Lookup::Found(true), ..state })
}

#[test]
fn a_living_init_with_a_record_is_reported_only() {
    let sighting = Sighting { runc_state: living_init(), ..sample::orphaned() };
    assert_held_by(&sighting, Guard::LiveInit);
    assert_held_by(&sighting, Guard::RecordPresent);
}

#[test]
fn workload_processes_without_any_state_need_the_record_gone() {
    let mut sighting = Sighting { runc_state: Lookup::NotFound, ..sample::orphaned() };
    assert_held_by(&sighting, Guard::RecordPresent);
    sighting.runtimes[0].record = Lookup::NotFound;
    assert_leaked(&sighting, LeakKind::Orphaned, Cause::ShimDead);
}

#[test]
fn a_finished_create_is_no_half_created_leak() {
    let mut sighting = half_created();
    sighting.bundle = sighting.bundle.map(|bundle| crate::fact::BundleFact {
        progress: Lookup::Found(crate::fact::CreateProgress::Finished),
        ..bundle
    });
    assert_held_by(&sighting, Guard::RecordPresent);
}

#[test]
fn a_lost_event_vetoes() {
    let policy = Policy::default();
    let stale = Freshness::Stale("12 records lost".to_owned());
    let verdict = conclude(&half_created(), assess(&half_created(), &policy, &stale), &old(), &policy, NOW);
    assert_eq!(guards_of(&verdict), [Guard::EventGap]);
}

#[test]
fn a_bundle_that_names_another_cgroup_vetoes() {
    let other = CgroupPath::try_from("/kubepods.slice/other.scope").unwrap();
    for named in [Lookup::Found(other), unavailable()] {
        let mut sighting = half_created();
        sighting.bundle = Lookup::Found(crate::fact::BundleFact { cgroup: named, ..sample::bundle() });
        assert_held_by(&sighting, Guard::IdentityChanged);
    }
}

#[test]
fn a_seen_path_with_another_cgroup_on_it_has_no_provenance() {
    let seen = |id| Provenance::Seen {
        cgroups: vec![CgroupRef { hierarchy: Hierarchy::UNIFIED, id: CgroupId(id) }],
    };
    let sighting = Sighting { provenance: seen(1), bundle: Lookup::NotFound, ..half_created() };
    assert_held_by(&sighting, Guard::NoProvenance);
    let sighting = Sighting { provenance: seen(48_213), ..sighting };
    assert_leaked(&sighting, LeakKind::HalfCreated, Cause::CreateKilled);
}

#[test]
fn other_managers_cgroups_are_foreign() {
    for path in [
        "/machine.slice/libpod-1.scope",
        "/kubepods.slice/crio-1.scope",
        "/user.slice/user-0.slice/x.scope",
        "/user@0/x",
    ] {
        let cgroup = CgroupPath::try_from(path).unwrap();
        assert_held_by(&Sighting { cgroup, ..half_created() }, Guard::Foreign);
    }
    assert_held_by(&Sighting { enclosed_by: Some(sample::container()), ..half_created() }, Guard::Foreign);
    let mut sighting = half_created();
    sighting.runtimes.push(RuntimeAnswer { ownership: Ownership::Foreign, ..answer() });
    assert_held_by(&sighting, Guard::Foreign);
}

#[test]
fn a_living_ancestor_that_nothing_explains_owns_the_members() {
    let sighting = Sighting { owners: vec![sample::workload()], ..half_created() };
    assert_held_by(&sighting, Guard::Foreign);
    let verdict = format!("{:?}", judge(&sighting));
    assert!(verdict.contains("sleep (pid 91300) is a living ancestor"), "{verdict}");
}

#[test]
fn slices_services_pods_and_tops_are_never_targets() {
    for path in [
        "/",
        "/kubepods",
        "/kubepods.slice/kubepods-pod1.slice",
        "/system.slice/containerd.service",
        "/kubepods/pod6d1c5b0e-30a5-4b6f-9a35-3f7b7d7f3a10",
    ] {
        let cgroup = CgroupPath::try_from(path).unwrap();
        assert_held_by(&Sighting { cgroup, ..half_created() }, Guard::Protected);
    }
}

#[test]
fn names_protected_by_policy_are_never_targets() {
    let ids = Policy { protect_ids: [sample::container().id].into(), ..Policy::default() };
    let namespaces =
        Policy { protect_namespaces: [sample::container().namespace].into(), ..Policy::default() };
    let pattern = crate::policy::PathPattern::try_from("/kubepods.slice/**".to_owned()).unwrap();
    let paths = Policy { protect_paths: vec![pattern], ..Policy::default() };
    for policy in [ids, namespaces, paths] {
        let assessment = assess(&half_created(), &policy, &Freshness::Fresh);
        let verdict = conclude(&half_created(), assessment, &old(), &policy, NOW);
        assert_eq!(guards_of(&verdict), [Guard::Protected]);
    }
}

#[test]
fn an_annotation_in_the_bundle_or_in_the_record_protects() {
    let mut bundle = half_created();
    bundle.bundle = bundle.bundle.map(|fact| crate::fact::BundleFact { protected: true, ..fact });
    let record = Sighting {
        bundle: Lookup::NotFound,
        runtimes: vec![RuntimeAnswer { protected: true, ..answer() }],
        ..half_created()
    };
    for sighting in [bundle, record] {
        assert_held_by(&sighting, Guard::Protected);
    }
}

#[test]
fn members_that_must_live_veto() {
    let mut shim = sample::shim().process;
    shim.argv = vec!["/usr/bin/containerd-shim-kata-v2".to_owned()];
    assert_held_by(&Sighting { protected_members: vec![shim], ..half_created() }, Guard::ShimInside);
    let kubelet = sample::workload();
    assert_held_by(&Sighting { protected_members: vec![kubelet], ..half_created() }, Guard::SelfInside);
    assert_held_by(&Sighting { holds_self: Lookup::Found(true), ..half_created() }, Guard::SelfInside);
}

#[test]
fn a_member_outside_the_kill_hierarchy_vetoes() {
    let mut sighting = half_created();
    sighting.trees.push(sample::tree(Controllers::Other, 77, &[sample::workload()]));
    sighting.processes.push(sample::workload());
    assert_held_by(&sighting, Guard::StrayMember);
}

/// Healthy containers look so on v1: devices is the pod's slice, misc is the root.
#[test]
fn a_member_that_lies_elsewhere_in_hierarchies_that_do_not_kill_is_no_stray() {
    for kill in [Controllers::Freezer, Controllers::Unified] {
        let mut sighting = half_created();
        sighting.trees =
            vec![sample::tree(Controllers::Other, 77, &[]), sample::tree(kill, 78, &[sample::init()])];
        assert_leaked(&sighting, LeakKind::HalfCreated, Cause::CreateKilled);
    }
}

// --- time -------------------------------------------------------------------------------------------------------

#[test]
fn a_young_leak_is_suspected_and_says_when_it_is_ready() {
    let policy = Policy::default();
    let since = BootTime::from_nanos(NOW.as_nanos() - 1_000_000_000);
    let history = History { first_seen: since, clean_since: Some(since), looks: 2 };
    let verdict = conclude(
        &half_created(),
        assess(&half_created(), &policy, &Freshness::Fresh),
        &history,
        &policy,
        NOW,
    );
    assert_eq!(verdict.state(), Some(LeakState::Suspected));
    assert_eq!(verdict.ready_at(), Some(since.after(policy.grace)));
}

#[test]
fn one_look_is_never_enough_even_without_any_grace() {
    let policy = Policy { grace: std::time::Duration::ZERO, ..Policy::default() };
    let history = History { first_seen: NOW, clean_since: Some(NOW), looks: 1 };
    let verdict = conclude(
        &half_created(),
        assess(&half_created(), &policy, &Freshness::Fresh),
        &history,
        &policy,
        NOW,
    );
    assert_eq!(guards_of(&verdict), [Guard::TooYoung, Guard::TooYoung]);
}

#[test]
fn a_containerd_that_just_started_is_given_time() {
    let started = sample::key(200, NOW.as_nanos() / 10_000_000 - 100);
    let sighting = with_runtime(|answer| answer.server = Lookup::Found(ServerFact { process: started }));
    assert_held_by(&sighting, Guard::TooYoung);
}

#[test]
fn another_guard_keeps_the_state_protected_whatever_the_time() {
    let sighting = Sighting { in_flight: vec![sample::command("create")], ..half_created() };
    assert_eq!(judge(&sighting).state(), Some(LeakState::Protected));
}

#[test]
fn every_rule_is_about_a_guard_of_its_own() {
    let guards: std::collections::BTreeSet<Guard> = RULES.iter().map(|rule| rule.guard).collect();
    assert_eq!(guards.len(), RULES.len());
}

// --- properties -------------------------------------------------------------------------------------------------

fn any_lookup<T: Clone + std::fmt::Debug + 'static>(value: T) -> impl Strategy<Value = Lookup<T>> {
    select(vec![Lookup::Found(value), Lookup::NotFound, unavailable()])
}

prop_compose! {
    fn any_sighting()(
        base in select(vec![half_created(), sample::orphaned(), sample::empty()]),
        task in any_lookup(TaskStatus::Running),
        record in any_lookup(()),
        server in any_lookup(ServerFact { process: sample::key(200, 7) }),
        shim in proptest::option::of(any_lookup(TaskStatus::Running)),
        flight in any::<bool>(),
        state in any_lookup(RuncState { path: PathBuf::from("/s"), init: None, init_alive: Lookup::Found(true) }),
        bundle in any_lookup(sample::bundle()),
    ) -> Sighting {
        Sighting {
            runtimes: vec![RuntimeAnswer { server, task, record, ..answer() }],
            shims: shim.map(sample::shim_answer).into_iter().collect(),
            in_flight: flight.then(|| sample::command("create")).into_iter().collect(),
            runc_state: state,
            bundle,
            ..base
        }
    }
}

#[test]
fn the_docs_show_the_table_of_guards_as_it_is_and_name_every_guard() {
    let page = include_str!("../../../docs/verdicts.md");
    let rows: Vec<String> =
        RULES.iter().map(|rule| format!("| `{}` | {} |", rule.guard, rule.means)).collect();
    let table =
        page.split("| guard | condition |\n|---|---|\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_eq!(table.lines().collect::<Vec<_>>(), rows);
    for guard in Guard::ALL {
        assert!(page.contains(&format!("`{guard}`")), "{guard} is not explained");
    }
}

proptest! {
    #[test]
    fn judge_is_monotone_in_evidence(sighting in any_sighting(), which in 0_usize..6) {
        let before = judge(&sighting);
        let mut less = sighting;
        match which {
            0 => less.runtimes[0].task = unavailable(),
            1 => less.runtimes[0].record = unavailable(),
            2 => less.runtimes[0].server = unavailable(),
            3 => less.runc_state = unavailable(),
            4 => less.bundle = unavailable(),
            _ => less.trees[0].populated = unavailable(),
        }
        prop_assert!(!matches!(judge(&less), Verdict::Leaked(_)), "from {before:?}");
    }

    #[test]
    fn a_proof_never_stands_beside_an_owner_or_a_command(sighting in any_sighting()) {
        if matches!(judge(&sighting), Verdict::Leaked(_)) {
            prop_assert!(sighting.runtimes.iter().all(|runtime| runtime.task.is_not_found()));
            prop_assert!(sighting.shims.iter().all(|shim| shim.task.is_not_found()));
            prop_assert!(sighting.in_flight.is_empty());
        }
    }

    #[test]
    fn the_same_facts_replay_to_the_same_verdict(sighting in any_sighting()) {
        let policy = Policy::default();
        let run = || {
            let mut inventory = Inventory::default();
            let history = inventory.note(&sighting, Look::Clean, NOW);
            conclude(&sighting, assess(&sighting, &policy, &Freshness::Fresh), &history, &policy, NOW)
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_create_that_was_seen_killed_is_the_cause_and_evidence_of_what_it_left() {
    let create = sample::ended_create(ProcessEnd::Signal(9));
    let seen = |sighting| Sighting { failed_create: Some(create.clone()), ..sighting };
    let provenance = Provenance::Record { address: sample::ADDRESS.to_owned() };
    let bare = Sighting { bundle: Lookup::NotFound, provenance, ..sample::empty() };
    assert_leaked(&bare, LeakKind::Empty, Cause::Unknown);
    assert_leaked(&seen(bare), LeakKind::Empty, Cause::CreateKilled);
    let Verdict::Leaked(proof) = judge(&seen(half_created())) else { panic!() };
    let line = proof.evidence().iter().find(|one| one.source == Source::Kernel).unwrap();
    assert_eq!(line.what, "create (process 400, under shim 300) was killed by signal 9 after 250.0ms");
}
