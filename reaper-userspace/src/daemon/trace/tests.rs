//! What is written comes back, and is judged alike.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::daemon::judge::Court;
use crate::fact::{RuncState, sample};
use crate::ident::{CgroupPath, Lookup};
use crate::verdict::Verdict;

const SECRET: &str = "hunter2";

fn at(seconds: u64) -> BootTime {
    BootTime::default().after(Duration::from_secs(seconds))
}

/// Sightings with a secret wherever a command line is.
fn tellers() -> Vec<Sighting> {
    let mut sightings = vec![sample::half_created(), sample::orphaned(), sample::empty()];
    let told = |mut process: ProcessFact, argv0: &str| {
        process.argv = vec![argv0.to_owned(), format!("--password={SECRET}"), SECRET.to_owned()];
        process
    };
    let mut command = sample::command("create");
    command.process.argv =
        ["/usr/sbin/runc", "create", SECRET, sample::container().id.as_str()].map(str::to_owned).to_vec();
    let shim = RuntimeProcess {
        process: told(sample::shim().process, "/x/containerd-shim-runc-v2"),
        ..sample::shim()
    };
    for argv0 in [
        "/usr/bin/containerd-shim-runc-v2",
        &format!("/run/app: user {SECRET}"),
        &format!("containerd-shim {SECRET}/x"),
        "",
    ] {
        let mut sighting = sample::orphaned();
        sighting.processes = vec![told(sample::workload(), argv0)];
        sighting.protected_members = sighting.processes.clone();
        sighting.owners = sighting.processes.clone();
        sighting.in_flight = vec![command.clone()];
        sighting.supervisors = vec![shim.clone(), command.clone()];
        sightings.push(sighting);
    }
    sightings
}

fn verdict(sighting: &Sighting) -> Verdict {
    let policy = Policy { grace: Duration::ZERO, look_gap: Duration::ZERO, ..Policy::default() };
    let mut inventory = Inventory::default();
    let court = |now| Court { policy: &policy, freshness: &Freshness::Fresh, now };
    court(at(2_000)).judge(&mut inventory, sighting.clone());
    court(at(2_001)).judge(&mut inventory, sighting.clone()).verdict
}

#[test]
fn what_a_trace_leaves_out_changes_no_verdict() {
    for sighting in tellers() {
        let kept = reduced(&sighting);
        match (verdict(&sighting), verdict(&kept)) {
            (Verdict::Leaked(full), Verdict::Leaked(less)) => {
                assert_eq!((full.kind(), full.evidence()), (less.kind(), less.evidence()));
            }
            (full, less) => assert_eq!(full, less),
        }
    }
}

#[test]
fn no_argument_that_may_be_a_secret_is_recorded_and_what_names_the_container_is() {
    for sighting in tellers() {
        let text = serde_json::to_string(&reduced(&sighting)).unwrap();
        assert!(!text.contains(SECRET), "{text}");
    }
    let kept = reduced(tellers().last().unwrap());
    assert_eq!(kept.in_flight[0].process.argv, ["runc", "create", sample::container().id.as_str()]);
    assert_eq!(kept.supervisors[0].process.argv, ["containerd-shim-runc-v2"]);
}

/// Every kind of answer, and names that are no text.
fn odd() -> Sighting {
    use std::os::unix::ffi::OsStringExt as _;
    let odd = |name: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(name.to_vec()));
    let mut sighting = sample::orphaned();
    sighting.cgroup = CgroupPath::try_from(odd(b"/a\xff/b\\x2d\x1b")).unwrap();
    sighting.trees[0].nodes[0].path = sighting.cgroup.clone();
    sighting.trees[0].populated = Lookup::Unavailable("read cgroup.events: EIO".to_owned());
    sighting.processes[0].exe = Some(odd(b"/bin/\xc3\x28\n"));
    sighting.processes[0].parent = None;
    sighting.runc_state = Lookup::Found(RuncState {
        path: odd(b"/run/\xfe"),
        init: None,
        init_alive: Lookup::Unavailable("x".to_owned()),
    });
    sighting.supervisors = vec![sample::shim()];
    sighting.shims = vec![sample::shim_answer(Lookup::NotFound)];
    sighting.enclosed_by = Some(sample::container());
    sighting.mounts = Lookup::Unavailable("y".to_owned());
    reduced(&sighting)
}

fn record(
    recorder: &mut Recorder,
    at: BootTime,
    scope: Scope,
    sightings: &[Sighting],
    inventory: &Inventory,
) {
    let policy = Policy { grace: Duration::from_secs(1), ..Policy::default() };
    let setting = Setting { at, scope, freshness: &Freshness::Stale("lost 3".to_owned()), policy: &policy };
    recorder.add(&setting, inventory, sightings).unwrap();
}

fn read(path: &Path) -> Result<Vec<TracedLook<'static>>, ReadTraceError> {
    Reader::new(std::io::BufReader::new(std::fs::File::open(path).unwrap())).collect()
}

#[test]
fn a_look_comes_back_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    let mut inventory = Inventory::default();
    inventory.note(&odd(), crate::inventory::Look::Clean, at(1));
    let sightings = [odd(), sample::empty()];
    for scope in [Scope::Node, Scope::Recheck] {
        let mut recorder = Recorder::open(&path).unwrap();
        record(&mut recorder, at(7), scope, &sightings, &inventory);
        record(&mut recorder, at(8), scope, &[], &Inventory::default());
    }
    let looks = read(&path).unwrap();
    assert_eq!(looks.len(), 4);
    assert_eq!(looks[0].sightings[..], sightings);
    assert_eq!(looks[0].inventory.as_deref(), Some(&inventory));
    assert_eq!((looks[0].at, looks[0].scope), (at(7), Scope::Node));
    assert_eq!(*looks[0].freshness, Freshness::Stale("lost 3".to_owned()));
    assert_eq!(looks[0].policy.grace, Duration::from_secs(1));
    assert_eq!((looks[1].at, &looks[1].inventory), (at(8), &None));
    assert!(looks[2].inventory.is_some(), "another recording begins with what it knew");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_replay_gives_the_verdicts_of_the_looks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    let policy = Policy { grace: Duration::from_secs(1), ..Policy::default() };
    let mut inventory = Inventory::default();
    inventory.note(&sample::half_created(), crate::inventory::Look::Clean, at(1_990));
    let (mut live, mut gone) = (vec![], vec![]);
    for (seconds, sightings) in
        [(2_000, vec![sample::half_created()]), (2_001, vec![sample::orphaned()]), (2_003, vec![])]
    {
        let court = Court { policy: &policy, freshness: &Freshness::Fresh, now: at(seconds) };
        let setting =
            Setting { at: at(seconds), scope: Scope::Node, freshness: court.freshness, policy: &policy };
        let sightings: Vec<Sighting> = sightings.iter().map(reduced).collect();
        recorder.add(&setting, &inventory, &sightings).unwrap();
        live.extend(sightings.into_iter().map(|sighting| court.judge(&mut inventory, sighting)));
        if seconds == 2_003 {
            gone = inventory.retain(|_| false);
        }
    }
    let mut replay = Replay::default();
    let replayed: Vec<Replayed> = read(&path).unwrap().into_iter().map(|look| replay.look(look)).collect();
    assert_eq!(replayed.iter().flat_map(|look| look.judged.clone()).collect::<Vec<_>>(), live);
    assert_eq!((&replayed[2].gone, gone.len()), (&gone, 1));
    assert!(
        matches!(live[0].verdict, Verdict::Leaked(_)),
        "the age from before the recording counts: {:?}",
        live[0]
    );
}

#[test]
fn only_a_trace_is_added_to() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), content.as_bytes()).unwrap();
        path
    };
    let link = dir.path().join("link");
    symlink(file("target", ""), &link).unwrap();
    assert!(matches!(Recorder::open(&link), Err(RecordError::Open { .. })));
    for (path, what) in [
        (file("audit.jsonl", "{\"v\":1}\n"), "no trace"),
        (file("short", "{"), "no trace"),
        (file("torn", "{\"trace\":1,"), "ends within a line"),
        (PathBuf::from("/dev/null"), "no regular file"),
    ] {
        let error = Recorder::open(&path).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.to_string().contains("name another file"), "{error}");
    }
    let first = Recorder::open(&file("empty", "")).unwrap();
    assert!(matches!(Recorder::open(&dir.path().join("empty")), Err(RecordError::Open { .. })), "in use");
    drop(first);
}

#[test]
fn a_wrong_line_is_named_and_ends_the_reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    let mut recorder = Recorder::open(&path).unwrap();
    record(&mut recorder, at(7), Scope::Node, &[], &Inventory::default());
    let good = std::fs::read_to_string(&path).unwrap();
    for (second, says) in [
        ("\n".to_owned(), "line 2 is no recorded look"),
        (good.replace("\"trace\":1", "\"trace\":2"), "line 2 has version 2"),
        (good.replace("\"node\"", "\"planet\""), "line 2 is no recorded look"),
        (good.replace("\"sightings\":[]", "\"unknown\":1"), "line 2 is no recorded look"),
        (good.trim_end().to_owned(), "line 2 has no end"),
    ] {
        let text = format!("{good}{second}");
        let mut reader = Reader::new(text.as_bytes());
        assert!(matches!(reader.next(), Some(Ok(_))));
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
        assert!(reader.next().is_none());
    }
}

#[test]
fn a_line_without_end_is_not_read_into_memory() {
    let endless = std::io::BufReader::new(std::io::repeat(b'x'));
    let mut reader = Reader::new(endless);
    assert!(matches!(reader.next(), Some(Err(ReadTraceError::TooLong { line: 1 }))));
    assert!(reader.next().is_none());
}
