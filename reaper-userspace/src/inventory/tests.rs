//! What makes two looks one story.

use super::*;
use crate::fact::{Controllers, Ownership, ProcessFact, RuntimeAnswer, ServerFact, sample};
use crate::ident::Lookup;

fn at(seconds: u64) -> BootTime {
    BootTime::default().after(std::time::Duration::from_secs(seconds))
}

#[test]
fn looking_again_is_idempotent() {
    let mut inventory = Inventory::default();
    let first = inventory.note(&sample::half_created(), Look::Clean, at(10));
    let second = inventory.note(&sample::half_created(), Look::Clean, at(11));
    assert_eq!(first, History { first_seen: at(10), clean_since: Some(at(10)), looks: 1 });
    assert_eq!(second, History { looks: 2, ..first });
    assert_eq!(inventory.len(), 1);
}

#[test]
fn a_guard_in_between_starts_the_clock_anew() {
    let mut inventory = Inventory::default();
    inventory.note(&sample::half_created(), Look::Clean, at(10));
    let guarded = inventory.note(&sample::half_created(), Look::Guarded, at(11));
    assert_eq!((guarded.clean_since, guarded.first_seen), (None, at(10)));
    let again = inventory.note(&sample::half_created(), Look::Clean, at(12));
    assert_eq!((again.clean_since, again.looks), (Some(at(12)), 1));
}

#[test]
fn a_new_incarnation_starts_the_clock_anew() {
    let newcomer = ProcessFact { key: sample::key(99_999, 90_000), ..sample::workload() };
    let mut other_cgroup = sample::half_created();
    other_cgroup.trees = vec![sample::tree(Controllers::Unified, 7, &[sample::init()])];
    let mut other_member = sample::half_created();
    other_member.processes.push(newcomer);
    let mut other_server = sample::half_created();
    other_server.runtimes[0].server = Lookup::Found(ServerFact { process: sample::key(201, 9) });
    let mut reused_pid = sample::half_created();
    reused_pid.processes[0].key.start = crate::ident::StartTicks::from_ticks(99_000);
    for changed in [other_cgroup, other_member, other_server, reused_pid] {
        let mut inventory = Inventory::default();
        inventory.note(&sample::half_created(), Look::Clean, at(10));
        let history = inventory.note(&changed, Look::Clean, at(20));
        assert_eq!(history.clean_since, Some(at(20)), "{changed:#?}");
    }
}

#[test]
fn foreign_containerds_may_come_and_go() {
    let mut with_foreign = sample::half_created();
    let address = "/run/other.sock".to_owned();
    with_foreign.runtimes.push(RuntimeAnswer { address, ownership: Ownership::Foreign, ..sample::answer() });
    let mut inventory = Inventory::default();
    for (seconds, sighting) in
        [(10, sample::half_created()), (20, with_foreign), (30, sample::half_created())]
    {
        let history = inventory.note(&sighting, Look::Clean, at(seconds));
        assert_eq!(history.clean_since, Some(at(10)));
    }
}

#[test]
fn members_may_go_and_may_fork() {
    let mut inventory = Inventory::default();
    let mut sighting = sample::half_created();
    sighting.processes.push(sample::workload());
    inventory.note(&sighting, Look::Clean, at(10));
    let child = ProcessFact {
        key: sample::key(91_500, 82_000),
        parent: Some(sample::init().key.tgid),
        ..sample::workload()
    };
    let grandchild =
        ProcessFact { key: sample::key(91_501, 82_000), parent: Some(child.key.tgid), ..sample::workload() };
    sighting.processes = vec![sample::init(), child, grandchild];
    let history = inventory.note(&sighting, Look::Clean, at(20));
    assert_eq!(history.clean_since, Some(at(10)));
}

#[test]
fn what_a_full_look_does_not_find_is_forgotten() {
    let mut inventory = Inventory::default();
    inventory.note(&sample::half_created(), Look::Clean, at(10));
    assert_eq!(inventory.retain(|_| false), [sample::container()]);
    assert!(inventory.is_empty());
}
