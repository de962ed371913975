//! Who started whom.

use crate::fact::ProcessFact;
use crate::ident::Tgid;

/// The ancestors of a process, nearest first, as far as they are in the list.
///
/// Parents were read at different moments, so reused numbers can even form a loop: nobody is named twice.
pub fn ancestors(all: &[ProcessFact], tgid: Tgid) -> Vec<&ProcessFact> {
    let of = |tgid: Tgid| all.iter().find(|process| process.key.tgid == tgid);
    let mut chain: Vec<&ProcessFact> = Vec::new();
    let mut next = of(tgid).and_then(|process| process.parent);
    while let Some(parent) = next.and_then(of) {
        if parent.key.tgid == tgid || chain.iter().any(|known| known.key == parent.key) {
            break;
        }
        chain.push(parent);
        next = parent.parent;
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::ProcessState;
    use crate::ident::{ProcessKey, StartTicks};

    fn process(tgid: i64, parent: i64) -> ProcessFact {
        ProcessFact {
            key: ProcessKey { tgid: Tgid::new(tgid).unwrap(), start: StartTicks::from_ticks(1) },
            parent: Tgid::new(parent),
            comm: String::new(),
            state: ProcessState::Sleeping,
            exe: None,
            argv: Vec::new(),
            kernel_thread: false,
        }
    }

    fn chain(all: &[ProcessFact], tgid: i64) -> Vec<u32> {
        ancestors(all, Tgid::new(tgid).unwrap()).into_iter().map(|process| process.key.tgid.get()).collect()
    }

    #[test]
    fn ancestors_are_nearest_first_and_end_at_the_first_unknown() {
        let all = [process(1, 0), process(10, 1), process(20, 10), process(40, 30)];
        assert_eq!(chain(&all, 20), [10, 1]);
        assert_eq!(chain(&all, 40), Vec::<u32>::new());
        assert_eq!(chain(&all, 99), Vec::<u32>::new());
    }

    #[test]
    fn a_loop_ends() {
        let all = [process(10, 20), process(20, 30), process(30, 20)];
        assert_eq!(chain(&all, 10), [20, 30]);
        assert_eq!(chain(&[process(5, 5)], 5), Vec::<u32>::new());
    }
}
