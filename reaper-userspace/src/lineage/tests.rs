use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::fact::sample;
use crate::ident::StartTicks;

fn at(nanos: u64) -> BootTime {
    BootTime::from_nanos(nanos)
}

fn tgid(number: u32) -> Tgid {
    Tgid::new(number.into()).unwrap()
}

fn key(number: u32, born: u64) -> ProcessKey {
    ProcessKey { tgid: tgid(number), start: StartTicks::from_boot_nanos(born) }
}

fn comm(name: &str) -> Comm {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Comm::from_kernel(bytes)
}

fn forked(now: u64, number: u32, born: u64, by: &str) -> Event {
    let (creator, child) = (key(300, 8), key(number, born));
    Event { at: at(now), what: Occurrence::Forked { creator, child, born: at(born), comm: comm(by) } }
}

fn execed(now: u64, number: u32, born: u64, name: &str) -> Event {
    let what = Occurrence::Execed { process: key(number, born), born: at(born), comm: comm(name) };
    Event { at: at(now), what }
}

fn exited(now: u64, number: u32, born: u64, status: i32) -> Event {
    let (process, comm) = (key(number, born), comm("x"));
    Event { at: at(now), what: Occurrence::Exited { process, born: at(born), status: Some(status), comm } }
}

fn create() -> Claim {
    let invocation = sample::ended_create(ProcessEnd::Code(0)).invocation;
    Claim { invocation, shim: None }
}

fn unasked(_process: ProcessKey) -> Option<Claim> {
    panic!("nobody had to be asked")
}

fn ended(notice: Option<Notice>) -> EndedCommand {
    match notice {
        Some(Notice::CommandEnded(ended)) => *ended,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_number_that_comes_back_within_a_tick_is_two_incarnations() {
    let mut lineage = Lineage::default();
    for event in [forked(10, 7, 10, "sh"), exited(20, 7, 10, 0)] {
        assert_eq!(lineage.apply(&event, unasked), None);
    }
    assert_eq!(lineage.current(tgid(7)), None);
    let reuse = lineage.apply(&forked(30, 7, 30, "sh"), unasked);
    let before = Incarnation { tgid: tgid(7), born: at(10) };
    let after = Incarnation { tgid: tgid(7), born: at(30) };
    assert_eq!(reuse, Some(Notice::Reused(Reuse { before, ended: Some(at(20)), after })));
    assert_eq!(lineage.current(tgid(7)), Some(after));
}

#[test]
fn a_reuse_is_reported_although_the_end_was_lost() {
    let mut lineage = Lineage::default();
    lineage.apply(&forked(10, 7, 10, "sh"), unasked);
    let Some(Notice::Reused(reuse)) = lineage.apply(&forked(30, 7, 30, "sh"), unasked) else { panic!() };
    assert_eq!((reuse.before.born, reuse.ended, reuse.after.born), (at(10), None, at(30)));
}

#[test]
fn a_killed_create_is_reported_with_container_shim_signal_and_duration() {
    let mut lineage = Lineage::default();
    lineage.apply(&forked(10, 7, 10, "containerd-shim"), unasked);
    assert_eq!(lineage.apply(&execed(1_000, 7, 10, "runc"), |_| Some(create())), None);
    let command = ended(lineage.apply(&exited(5_000, 7, 10, 9), unasked));
    assert_eq!(command.invocation.as_ref().unwrap().container(), Some(sample::container()));
    assert_eq!((command.end, command.shim), (ProcessEnd::Signal(9), Some(key(300, 8))));
    assert_eq!((command.began, command.ended), (at(1_000), at(5_000)));
}

#[test]
fn a_wrapper_that_executes_the_runtime_is_one_command() {
    let mut lineage = Lineage::default();
    lineage.apply(&execed(10, 7, 1, "runc-wrapper"), |_| Some(create()));
    lineage.apply(&execed(20, 7, 1, "runc"), |_| Some(create()));
    let command = ended(lineage.apply(&exited(30, 7, 1, 3 << 8), unasked));
    assert_eq!((command.began, command.end), (at(10), ProcessEnd::Code(3)));
}

#[test]
fn what_was_gone_before_it_could_be_asked_is_an_unknown_command() {
    let mut lineage = Lineage::default();
    lineage.apply(&execed(10, 7, 1, "crun"), |_| None);
    assert_eq!(ended(lineage.apply(&exited(20, 7, 1, 0), unasked)).invocation, None);
}

#[test]
fn an_init_and_the_program_it_becomes_are_no_commands() {
    let mut lineage = Lineage::default();
    lineage.apply(&execed(10, 7, 1, "runc"), |_| Some(Claim { invocation: None, shim: None }));
    lineage.apply(&execed(20, 7, 1, "sleep"), unasked);
    assert_eq!(lineage.apply(&exited(30, 7, 1, 9), unasked), None);
}

#[test]
fn memory_is_bounded_and_keeps_what_was_heard_of_last() {
    let mut lineage = Lineage::default();
    for number in 1..=u32::try_from(LIMIT).unwrap() * 2 {
        lineage.apply(&forked(number.into(), number, number.into(), "sh"), unasked);
    }
    assert!(lineage.lives.len() <= LIMIT, "{}", lineage.lives.len());
    assert!(lineage.current(tgid(u32::try_from(LIMIT).unwrap() * 2)).is_some());
    assert!(lineage.current(tgid(1)).is_none());
}

/// What the kernel can do with a few numbers: births of free ones, deaths of used ones, and lost records.
fn history() -> impl Strategy<Value = Vec<(u32, bool)>> {
    proptest::collection::vec((1_u32..5, any::<bool>()), 0..200)
}

proptest! {
    #[test]
    fn every_reuse_is_reported_once_and_none_is_invented(steps in history()) {
        let mut lineage = Lineage::default();
        let mut alive: BTreeMap<u32, u64> = BTreeMap::new();
        let mut known: BTreeMap<u32, u64> = BTreeMap::new();
        for ((number, lost), now) in steps.into_iter().zip(1_u64..) {
            let (event, born) = if let Some(born) = alive.remove(&number) {
                (exited(now, number, born, 0), born)
            } else {
                alive.insert(number, now);
                (forked(now, number, now, "sh"), now)
            };
            if lost {
                continue;
            }
            let expected = known.insert(number, born).filter(|before| *before != born);
            let got = match lineage.apply(&event, unasked) {
                Some(Notice::Reused(reuse)) => Some((reuse.before.born.as_nanos(), reuse.after.born.as_nanos())),
                Some(Notice::CommandEnded(_)) => panic!(),
                None => None,
            };
            prop_assert_eq!(got, expected.map(|before| (before, born)));
        }
    }
}

#[test]
fn a_container_is_named_only_with_its_namespace() {
    let without =
        Invocation { namespace: None, ..sample::ended_create(ProcessEnd::Code(0)).invocation.unwrap() };
    assert_eq!(without.container(), None);
}

fn by_number(now: u64, act: Act, number: u32) -> Event {
    let what = Occurrence::Unidentified { act, tgid: tgid(number), creator: None, comm: comm("x") };
    Event { at: at(now), what }
}

#[test]
fn a_number_that_ends_or_is_given_out_anew_ends_who_had_it() {
    for act in [Act::Exited, Act::Forked] {
        let mut lineage = Lineage::default();
        lineage.apply(&execed(10, 7, 1, "runc"), |_| Some(create()));
        assert_eq!(lineage.apply(&by_number(20, act, 7), unasked), None, "no end is told that was not seen");
        assert_eq!((lineage.current(tgid(7)), lineage.invocation_of(tgid(7))), (None, None));
        let Some(Notice::Reused(reuse)) = lineage.apply(&forked(30, 7, 30, "sh"), unasked) else { panic!() };
        assert_eq!((reuse.before.born, reuse.ended), (at(1), Some(at(20))));
    }
}

#[test]
fn a_command_of_which_nobody_saw_how_it_ended_is_not_told() {
    let mut lineage = Lineage::default();
    lineage.apply(&execed(10, 7, 1, "runc"), |_| Some(create()));
    let what = Occurrence::Exited { process: key(7, 1), born: at(1), status: None, comm: comm("runc") };
    assert_eq!(lineage.apply(&Event { at: at(20), what }, unasked), None);
    assert_eq!(lineage.current(tgid(7)), None);
}
