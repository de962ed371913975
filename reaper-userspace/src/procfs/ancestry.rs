//! Who started whom.

use std::collections::BTreeMap;

use crate::fact::ProcessFact;
use crate::ident::{Lookup, ProcessKey, Tgid};

/// How often a line of ancestors may change under the reader before it counts as unknown.
const TRIES: u32 = 5;

/// Reads the process that has a number now.
pub type Read<'a> = &'a dyn Fn(Tgid) -> Lookup<ProcessFact>;

/// Every living ancestor of the given processes that is not one of them; without an order. Never `NotFound`.
///
/// Parents are read now and not taken from an earlier list: a parent that is gone by the time it is read has left its
/// child to another one (`kernel/exit.c:forget_original_parent`), so that line is followed anew. One that exists and
/// cannot be read could be anybody.
pub fn ancestors(of: &[ProcessFact], read: Read<'_>) -> Lookup<Vec<ProcessFact>> {
    let among: BTreeMap<Tgid, ProcessKey> =
        of.iter().map(|process| (process.key.tgid, process.key)).collect();
    let mut known = BTreeMap::new();
    for process in of {
        if let Err(reason) = climb(process, &among, read, &mut known) {
            return Lookup::Unavailable(reason);
        }
    }
    Lookup::Found(known.into_values().collect())
}

/// Follows one line up to a process without a parent, or to one whose line is followed already.
fn climb(
    process: &ProcessFact,
    among: &BTreeMap<Tgid, ProcessKey>,
    read: Read<'_>,
    known: &mut BTreeMap<ProcessKey, ProcessFact>,
) -> Result<(), String> {
    let (mut child, mut tries) = (process.clone(), TRIES);
    while let Some(parent) = child.parent.filter(|parent| !among.contains_key(parent)) {
        match read(parent) {
            Lookup::Found(fact) => {
                if known.insert(fact.key, fact.clone()).is_some() {
                    break;
                }
                child = fact;
            }
            Lookup::NotFound if tries == 0 => {
                return Err(format!(
                    "the parents of process {} change faster than they are read",
                    process.key.tgid
                ));
            }
            Lookup::NotFound => {
                tries = tries.saturating_sub(1);
                match read(process.key.tgid) {
                    Lookup::Found(again) if again.key == process.key => child = again,
                    // It is gone itself, and nobody above it matters.
                    Lookup::Found(_) | Lookup::NotFound => break,
                    Lookup::Unavailable(reason) => return Err(reason),
                }
            }
            Lookup::Unavailable(reason) => return Err(reason),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::fact::sample;

    fn process(tgid: i64, parent: i64) -> ProcessFact {
        ProcessFact { key: sample::key(tgid, 1), parent: Tgid::new(parent), ..sample::workload() }
    }

    fn reader(all: &[ProcessFact]) -> impl Fn(Tgid) -> Lookup<ProcessFact> {
        let all = all.to_vec();
        move |tgid| {
            let found = all.iter().find(|process| process.key.tgid == tgid);
            found.map_or(Lookup::NotFound, |process| Lookup::Found(process.clone()))
        }
    }

    fn numbers(answer: &Lookup<Vec<ProcessFact>>) -> Vec<u32> {
        answer.found().unwrap().iter().map(|process| process.key.tgid.get()).collect()
    }

    #[test]
    fn ancestors_are_followed_to_the_first_process_and_named_once() {
        let all = [process(1, 0), process(10, 1), process(20, 10), process(30, 20), process(40, 20)];
        assert_eq!(numbers(&ancestors(&[process(30, 20), process(40, 20)], &reader(&all))), [1, 10, 20]);
        assert_eq!(numbers(&ancestors(&[process(30, 20), process(20, 10)], &reader(&all))), [1, 10]);
    }

    #[test]
    fn a_loop_ends() {
        let all = [process(10, 20), process(20, 30), process(30, 20)];
        assert_eq!(numbers(&ancestors(&[process(10, 20)], &reader(&all))), [20, 30]);
        assert_eq!(numbers(&ancestors(&[process(5, 5)], &reader(&all))), Vec::<u32>::new());
    }

    #[test]
    fn a_parent_that_ended_is_asked_for_anew_and_one_that_cannot_be_read_is_no_absence() {
        let adopted = [process(1, 0), process(7, 1), process(30, 7)];
        assert_eq!(numbers(&ancestors(&[process(30, 20)], &reader(&adopted))), [1, 7]);
        assert_eq!(numbers(&ancestors(&[process(30, 20)], &reader(&[]))), Vec::<u32>::new());
        let hidden = |_: Tgid| Lookup::Unavailable("hidden".to_owned());
        assert!(ancestors(&[process(30, 20)], &hidden).unavailable().is_some());
    }

    #[test]
    fn a_line_that_never_holds_still_is_unknown() {
        let asked = RefCell::new(20);
        let read = |tgid: Tgid| {
            *asked.borrow_mut() += 1;
            if tgid.get() == 9 { Lookup::Found(process(9, *asked.borrow())) } else { Lookup::NotFound }
        };
        assert!(ancestors(&[process(9, 20)], &read).unavailable().is_some());
    }
}
