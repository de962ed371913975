//! Golden replays: traces recorded on real runs, and the verdicts they must give.
//!
//! `testdata/*.jsonl` was recorded with `run --record` on a hybrid (v1) and a v2 view of one machine, with containerd
//! 1.6 and runc 1.1; ids and paths are shortened. Set `REAPER_BLESS=1` to accept changed verdicts, and read the diff.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::leak::Guard;

/// What must not depend on how often something was looked at.
type Ruling = (ContainerKey, &'static str, Option<LeakKind>, BTreeSet<Guard>, Vec<&'static str>);

fn testdata(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", name].iter().collect()
}

fn read(name: &str) -> Vec<TracedLook<'static>> {
    let file = File::open(testdata(&format!("{name}.jsonl"))).unwrap();
    Reader::new(BufReader::new(file)).collect::<Result<_, _>>().unwrap()
}

fn judge(looks: &[TracedLook<'static>]) -> Vec<Shown> {
    let mut replay = Replay::default();
    looks.iter().cloned().map(|look| Shown::of(&mut replay, look)).collect()
}

/// The table, then each verdict with what it rests on.
fn report(looks: &[Shown]) -> String {
    let mut report = text(looks);
    for (number, line) in
        (1..).zip(looks).flat_map(|(number, look)| look.containers.iter().map(move |line| (number, line)))
    {
        report.push_str(&format!("\n{number} {} {}: {}\n", line.id, line.container, line.state));
        report.extend(line.guards.iter().map(|veto| format!("  - {}: {}\n", veto.guard, veto.detail)));
        report.extend(
            line.evidence.iter().map(|evidence| format!("  + {}: {}\n", evidence.source, evidence.what)),
        );
    }
    report
}

fn is_golden(name: &str) {
    let report = report(&judge(&read(name)));
    let golden = testdata(&format!("{name}.txt"));
    if std::env::var_os("REAPER_BLESS").is_some() {
        #[expect(clippy::disallowed_methods, reason = "accepts what a person asked to accept")]
        std::fs::write(&golden, &report).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    let differs = report.lines().zip(expected.lines()).find(|(now, then)| now != then);
    assert!(
        report == expected,
        "{name}: the verdicts differ, first in {differs:#?}; see REAPER_BLESS in this file"
    );
}

fn rulings(look: &Shown) -> Vec<Ruling> {
    let of = |line: &Line| {
        let guards = line.guards.iter().map(|veto| veto.guard).collect();
        (line.container.clone(), line.state, line.kind, guards, line.plan.clone())
    };
    look.containers.iter().map(of).collect()
}

const TRACES: [&str; 6] = ["hung-v1", "hung-v2", "leaks-v1", "leaks-v2", "restart-v1", "restart-v2"];

#[test]
fn every_kind_of_leak_is_proven_and_planned_on_v1() {
    is_golden("leaks-v1");
}

#[test]
fn every_kind_of_leak_is_proven_and_planned_on_v2() {
    is_golden("leaks-v2");
}

#[test]
fn the_living_stay_while_containerd_is_down_and_comes_back_on_v1() {
    is_golden("restart-v1");
}

#[test]
fn the_living_stay_while_containerd_is_down_and_comes_back_on_v2() {
    is_golden("restart-v2");
}

#[test]
fn a_create_in_flight_stays_while_containerd_hangs_on_v1() {
    is_golden("hung-v1");
}

#[test]
fn a_create_in_flight_stays_while_containerd_hangs_on_v2() {
    is_golden("hung-v2");
}

#[test]
fn what_was_started_and_not_leaked_is_live_or_protected_in_every_look() {
    for name in TRACES {
        for look in judge(&read(name)) {
            let alive = look
                .containers
                .iter()
                .filter(|line| ["web", "paused", "slow"].contains(&line.container.id.as_str()));
            for line in alive {
                assert!(["live", "protected"].contains(&line.state), "{name}: {line:#?}");
            }
        }
    }
}

#[test]
fn a_trace_replayed_twice_gives_the_same() {
    for name in TRACES {
        let looks = read(name);
        assert_eq!(report(&judge(&looks)), report(&judge(&looks)), "{name}");
    }
}

#[test]
fn a_look_that_shows_nothing_new_changes_no_ruling() {
    for name in TRACES {
        let looks = read(name);
        let rulings_of = |looks: &[TracedLook<'static>]| judge(looks).iter().map(rulings).collect::<Vec<_>>();
        let expected = rulings_of(&looks);
        for (at, look) in looks.iter().enumerate() {
            let mut longer = looks.clone();
            longer.insert(at + 1, look.clone());
            longer[at + 1].inventory = None;
            let mut rulings = rulings_of(&longer);
            assert_eq!(rulings.remove(at + 1), expected[at], "{name}: look {at} again");
            assert_eq!(rulings, expected, "{name}: after look {at} again");
        }
    }
}

#[test]
fn a_broken_trace_is_an_error_that_names_file_line_and_cause() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut text = std::fs::read_to_string(testdata("leaks-v2.jsonl")).unwrap();
    text.push_str("{\"trace\":1}\n");
    std::io::Write::write_all(&mut file.as_file(), text.as_bytes()).unwrap();
    let error = format!("{:#}", replay(file.path()).unwrap_err());
    let line = text.lines().count();
    for word in
        [file.path().to_str().unwrap(), &format!("line {line} is no recorded look"), "missing field `at`"]
    {
        assert!(error.contains(word), "{error}");
    }
    assert!(format!("{:#}", replay(&testdata("nothing")).unwrap_err()).contains("No such file"));
}
