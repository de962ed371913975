//! Numbers of watched processes that are forced to come back.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reaper_userspace::event::{Event, Occurrence};
use reaper_userspace::ident::Tgid;
use reaper_userspace::lineage::{Incarnation, Lineage, Notice};
use reaper_userspace::time::BootTime;

use crate::bench::{Process, attached, until};

const BATCHES: usize = 20;
const BATCH: usize = 502;

/// Who has which number, by the events alone.
#[derive(Default)]
struct Truth {
    last: BTreeMap<Tgid, Incarnation>,
    births: usize,
}

impl Truth {
    /// The incarnation that this event replaces.
    fn apply(&mut self, event: &Event, parent: u32) -> Option<Incarnation> {
        let Occurrence::Forked { creator, child, born, .. } = event.what else { return None };
        if creator.tgid.get() != parent {
            return None;
        }
        self.births = self.births.saturating_add(1);
        let incarnation = Incarnation { tgid: child.tgid, born };
        let before = self.last.insert(child.tgid, incarnation);
        assert_ne!(before, Some(incarnation), "the same birth twice");
        before
    }
}

fn child_of(parent: u32, event: &Event) -> Option<(Tgid, BootTime)> {
    let Occurrence::Forked { creator, child, born, .. } = event.what else { return None };
    (creator.tgid.get() == parent).then_some((child.tgid, born))
}

fn ended(event: &Event) -> Option<(Tgid, BootTime)> {
    let Occurrence::Exited { process, born, .. } = event.what else { return None };
    Some((process.tgid, born))
}

fn adversary() -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reuse"));
    Process::spawn(command.arg(BATCH.to_string()).stderr(Stdio::inherit()), None)
}

#[tokio::test]
async fn ten_thousand_forced_reuses_are_reported_each_and_none_is_confused() {
    let mut probe = attached();
    let mut adversary = adversary();
    let parent = adversary.pid();
    probe.watch(adversary.key()).unwrap();
    let (mut lineage, mut truth, mut reported) = (Lineage::default(), Truth::default(), 0);
    let begun = Instant::now();
    for batch in 1..=BATCHES {
        adversary.say("go");
        // Runtimes of other tests are watched too, and end as well.
        let ends = |events: &[Event]| {
            let children: BTreeSet<_> = events.iter().filter_map(|event| child_of(parent, event)).collect();
            events.iter().filter(|event| ended(event).is_some_and(|end| children.contains(&end))).count()
        };
        let events = until(&mut probe, |events| ends(events) >= BATCH).await;
        for event in &events {
            let expected = truth.apply(event, parent);
            match (expected, lineage.apply(event, |_| None)) {
                (Some(before), Some(Notice::Reused(reuse))) => {
                    assert_eq!((reuse.before, Some(reuse.after)), (before, lineage.current(before.tgid)));
                    assert!(reuse.ended.is_some_and(|ended| ended > before.born && ended <= event.at));
                    reported += 1;
                }
                (None, None | Some(Notice::CommandEnded(_))) => {}
                (expected, got) => panic!("batch {batch}: expected {expected:?}, got {got:?} of {event:?}"),
            }
        }
    }
    assert_eq!(truth.births, BATCHES * BATCH);
    assert_eq!(reported, truth.births - truth.last.len());
    assert!(reported >= 10_000, "{reported} reuses of {} numbers", truth.last.len());
    assert_eq!(probe.losses().unwrap().total(), 0);
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}
