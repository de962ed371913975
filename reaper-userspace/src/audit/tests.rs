//! The journal, its reader and what damage does to a file.
#![expect(clippy::disallowed_methods, reason = "damages files that it made in a temporary directory")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::ident::{CgroupId, CgroupRef, ContainerId, Hierarchy, Namespace};
use crate::leak::{Cause, LeakKind};
use crate::time::BootTime;

struct Dir {
    dir: TempDir,
}

impl Dir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("audit.jsonl")
    }

    fn open(&self) -> Result<(Journal, Vec<OpenIntent>), AuditError> {
        Journal::open(&self.path(), node(), at())
    }

    /// A file with every type of record, and its bytes.
    fn filled() -> (Self, Vec<u8>) {
        let dir = Self::new();
        let (mut journal, _) = dir.open().unwrap();
        journal.daemon_start(at(), tool()).unwrap();
        journal.leak_confirmed(at(), "leak-1".to_owned(), confirmed()).unwrap();
        let intent = journal.intent(at(), "leak-1".to_owned(), intent()).unwrap();
        journal.outcome(at(), intent, outcome()).unwrap();
        journal.daemon_stop(at(), "SIGTERM".to_owned()).unwrap();
        let bytes = fs::read(dir.path()).unwrap();
        (dir, bytes)
    }
}

fn at() -> Stamp {
    Stamp {
        wall: Timestamp::from_nanosecond(1_796_000_000_123_456_789).unwrap(),
        boot: BootTime::from_nanos(812_345_678_901),
    }
}

fn node() -> Node {
    Node { boot: "7d9f".to_owned(), name: "worker-3".to_owned() }
}

fn tool() -> Tool {
    Tool { version: "0.1.0".to_owned(), config: "sha256:ab12".to_owned(), mode: "enforce".to_owned() }
}

fn trigger() -> Trigger {
    Trigger::daemon(Cause::CreateKilled)
}

fn target() -> Target {
    Target {
        kind: LeakKind::HalfCreated,
        cgroup_ids: vec![CgroupRef { hierarchy: Hierarchy::UNIFIED, id: CgroupId(48_213) }],
        path: "/default/t1".to_owned(),
        container: ContainerId::try_from("t1").unwrap(),
        runtime_ns: Namespace::try_from("default").unwrap(),
    }
}

fn evidence() -> Vec<Evidence> {
    vec![Evidence {
        source: "containerd".to_owned(),
        what: "task NotFound".to_owned(),
        at: BootTime::from_nanos(9),
    }]
}

fn confirmed() -> Confirmed {
    Confirmed {
        trigger: trigger(),
        target: target(),
        evidence: evidence(),
        evidence_omitted: 0,
        detection_ms: Millis(Duration::from_micros(1_250)),
    }
}

fn intent() -> IntentBody {
    let before = Before::new(Answer::Yes, Answer::Unknown, &[]);
    let (tool, trigger, target) = (tool(), trigger(), target());
    IntentBody { tool, trigger, target, evidence: evidence(), evidence_omitted: 0, before }
}

fn outcome() -> OutcomeBody {
    let step = StepRecord {
        op: "rmdir".to_owned(),
        path: Some("/default/t1".to_owned()),
        ms: Millis(Duration::from_micros(300)),
        ok: true,
        error: None,
    };
    let killed = Killed { processes: vec![victim("runc:[2:INIT]")], ..Killed::default() };
    let took = Duration::from_micros(8_400);
    OutcomeBody { steps: vec![step], killed, ..OutcomeBody::new(Outcome::Reaped, After::Gone, took) }
}

fn victim(comm: &str) -> KilledProcess {
    KilledProcess { pid: 91_240, start: 81_233_410, comm: comm.to_owned() }
}

fn fault(path: &std::path::Path) -> (u64, Fault) {
    match verify(path) {
        Err(VerifyError::Line { line, source, .. }) => (line, source),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_keys_are_in_fixed_order() {
    let (_dir, bytes) = Dir::filled();
    let shown = without_hashes(&String::from_utf8(bytes).unwrap());
    insta::assert_snapshot!(shown, @r#"
    {"v":1,"seq":1,"ts":"2026-11-30T00:53:20.123456789Z","mono_ns":812345678901,"boot":"7d9f","node":"worker-3","type":"segment.open","prev":"sha256:..","hash":"sha256:.."}
    {"v":1,"seq":2,"ts":"2026-11-30T00:53:20.123456789Z","mono_ns":812345678901,"boot":"7d9f","node":"worker-3","type":"daemon.start","tool":{"version":"0.1.0","config":"sha256:..","mode":"enforce"},"prev":"sha256:..","hash":"sha256:.."}
    {"v":1,"seq":3,"ts":"2026-11-30T00:53:20.123456789Z","mono_ns":812345678901,"boot":"7d9f","node":"worker-3","type":"leak.confirmed","leak":"leak-1","trigger":{"by":"daemon","rule":"create_killed"},"target":{"kind":"cgroup.half_created","cgroup_ids":[{"hierarchy":0,"id":48213}],"path":"/default/t1","container":"t1","runtime_ns":"default"},"evidence":[{"source":"containerd","what":"task NotFound","at":9}],"detection_ms":1.25,"prev":"sha256:..","hash":"sha256:.."}
    {"v":1,"seq":4,"ts":"2026-11-30T00:53:20.123456789Z","mono_ns":812345678901,"boot":"7d9f","node":"worker-3","type":"reap.intent","leak":"leak-1","txn":4,"tool":{"version":"0.1.0","config":"sha256:..","mode":"enforce"},"trigger":{"by":"daemon","rule":"create_killed"},"target":{"kind":"cgroup.half_created","cgroup_ids":[{"hierarchy":0,"id":48213}],"path":"/default/t1","container":"t1","runtime_ns":"default"},"evidence":[{"source":"containerd","what":"task NotFound","at":9}],"before":{"populated":"yes","frozen":"unknown","processes":[]},"prev":"sha256:..","hash":"sha256:.."}
    {"v":1,"seq":5,"ts":"2026-11-30T00:53:20.123456789Z","mono_ns":812345678901,"boot":"7d9f","node":"worker-3","type":"reap.outcome","leak":"leak-1","txn":4,"target":{"kind":"cgroup.half_created","cgroup_ids":[{"hierarchy":0,"id":48213}],"path":"/default/t1","container":"t1","runtime_ns":"default"},"steps":[{"op":"rmdir","path":"/default/t1","ms":0.3,"ok":true}],"killed":{"method":"pidfd","processes":[{"pid":91240,"start":81233410,"comm":"runc:[2:INIT]"}]},"after":{"state":"gone"},"outcome":"reaped","dur_ms":8.4,"prev":"sha256:..","hash":"sha256:.."}
    {"v":1,"seq":6,"ts":"2026-11-30T00:53:20.123456789Z","mono_ns":812345678901,"boot":"7d9f","node":"worker-3","type":"daemon.stop","reason":"SIGTERM","prev":"sha256:..","hash":"sha256:.."}
    "#);
}

/// Hashes depend on each other; the shape of the lines does not.
fn without_hashes(text: &str) -> String {
    let mut words = text.split("sha256:");
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |shown, rest| {
        let hex = rest.chars().take_while(char::is_ascii_hexdigit).count();
        shown + "sha256:.." + &rest[hex..]
    })
}

#[test]
fn a_sound_file_verifies_and_reads_back_what_was_written() {
    let (dir, bytes) = Dir::filled();
    let report = verify(&dir.path()).unwrap();
    assert_eq!((report.records, report.first_seq, report.last_seq), (6, Some(1), Some(6)));
    assert_eq!(report.open, []);
    let line = bytes.split(|byte| *byte == b'\n').nth(3).unwrap();
    let record: Record = serde_json::from_slice(line).unwrap();
    assert_eq!(record.body, Body::ReapIntent { leak: "leak-1".to_owned(), txn: 4, body: intent() });
    assert_eq!(record.ts, at().wall);
}

/// Whatever the node's numbers and names are, and though each of their characters takes six bytes in JSON.
#[test]
fn no_record_is_too_long_to_be_written() {
    const MANY: usize = 20_000;
    let (dir, long) = (Dir::new(), "\u{1b}".repeat(8192));
    let (mut journal, _) = dir.open().unwrap();
    let process = ProcessRecord {
        pid: u32::MAX,
        start: u64::MAX,
        comm: long.clone(),
        exe: Some(long.clone()),
        argv0: Some(long.clone()),
        argv_sha256: None,
        state: 'D',
    };
    let mut intent = intent();
    intent.target.path = long.clone();
    intent.target.cgroup_ids = vec![intent.target.cgroup_ids[0]; MANY];
    intent.before.processes = vec![process; MANY];
    intent.evidence = vec![Evidence { what: long.clone(), ..evidence()[0].clone() }; MANY];
    let step =
        StepRecord { path: Some(long.clone()), error: Some(long.clone()), ..outcome().steps[0].clone() };
    let killed = Killed { processes: vec![victim(&long); MANY], ..Killed::default() };
    let end = OutcomeBody {
        steps: vec![step; MANY],
        bystanders: killed.clone(),
        killed,
        reason: Some(long.clone()),
        ..OutcomeBody::new(Outcome::Stuck, After::Remains { what: long.clone() }, Duration::ZERO)
    };
    let token = journal.intent(at(), "leak-1".to_owned(), intent).unwrap();
    journal.outcome(at(), token, end).unwrap();
    journal.daemon_stop(at(), long).unwrap();
    assert!(verify(&dir.path()).unwrap().open.is_empty());
    let text = fs::read_to_string(dir.path()).unwrap();
    assert!(text.lines().all(|line| line.len() < chain::MAX_LINE / 4));
    let line: serde_json::Value = serde_json::from_str(text.lines().nth(2).unwrap()).unwrap();
    let listed = line["killed"]["processes"].as_array().unwrap().len();
    assert_eq!(Some(u64::try_from(MANY - listed).unwrap()), line["killed"]["omitted"].as_u64());
    assert_eq!(line["steps_omitted"].as_u64(), u64::try_from(MANY - 128).ok());
}

#[test]
fn an_end_that_was_not_recorded_is_recorded_later() {
    let dir = Dir::new();
    let (mut journal, _) = dir.open().unwrap();
    let _open = journal.intent(at(), "leak-1".to_owned(), intent()).unwrap();
    drop(journal);
    let (mut journal, mut open) = dir.open().unwrap();
    journal.ended(at(), open.remove(0), outcome()).unwrap();
    journal.reopened(at(), "no space".to_owned()).unwrap();
    drop(journal);
    assert_eq!(verify(&dir.path()).unwrap().open, []);
    let text = fs::read_to_string(dir.path()).unwrap();
    assert!(text.contains("\"outcome\":\"reaped\"") && text.contains("audit.reopened"), "{text}");
}

#[test]
fn the_file_is_for_root_only() {
    let (dir, _) = Dir::filled();
    assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_removed_line_is_found() {
    let (dir, bytes) = Dir::filled();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    // Without its last line a file is as sound as before; see the module's header.
    for gone in 0..lines.len() - 1 {
        let mut rest = lines.clone();
        rest.remove(gone);
        fs::write(dir.path(), rest.concat()).unwrap();
        assert_eq!(fault(&dir.path()).0, u64::try_from(gone + 1).unwrap());
    }
}

#[test]
fn reordered_and_doubled_lines_are_found() {
    let (dir, bytes) = Dir::filled();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    fs::write(dir.path(), swapped.concat()).unwrap();
    assert!(matches!(fault(&dir.path()), (3, Fault::Chain { .. })));
    let mut doubled = lines;
    doubled.insert(3, doubled[2]);
    fs::write(dir.path(), doubled.concat()).unwrap();
    assert!(matches!(fault(&dir.path()), (4, Fault::Chain { .. })));
}

/// Whoever computes the hashes anew still cannot skip a number.
#[test]
fn a_gap_in_the_sequence_is_found() {
    let dir = Dir::new();
    let (mut journal, _) = dir.open().unwrap();
    journal.skip_a_number();
    journal.daemon_start(at(), tool()).unwrap();
    assert_eq!(fault(&dir.path()), (2, Fault::Sequence { found: 3, expected: 2 }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_flipped_byte_is_found(place in any::<prop::sample::Index>(), mask in 1_u8..) {
        static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| Dir::filled().1);
        let (dir, mut bytes) = (Dir::new(), SOUND.clone());
        let place = place.index(bytes.len());
        bytes[place] ^= mask;
        fs::write(dir.path(), &bytes).unwrap();
        prop_assert!(verify(&dir.path()).is_err(), "byte {place} mask {mask:#x}");
    }
}

#[test]
fn an_intent_without_an_outcome_comes_back_once() {
    let dir = Dir::new();
    let (mut journal, open) = dir.open().unwrap();
    assert_eq!(open, []);
    let token = journal.intent(at(), "leak-1".to_owned(), intent()).unwrap();
    let txn = token.txn();
    drop((token, journal));
    assert_eq!(verify(&dir.path()).unwrap().open.len(), 1);

    let (mut journal, mut open) = dir.open().unwrap();
    assert_eq!(open.len(), 1);
    let found = open.remove(0);
    assert_eq!((found.txn, &found.body, found.boot.as_str()), (txn, &intent(), "7d9f"));
    journal.recovered(at(), found, RecoveredBody { after: After::Gone }).unwrap();
    drop(journal);
    assert_eq!(dir.open().unwrap().1, []);
}

#[test]
fn a_torn_last_line_is_moved_aside_wherever_it_was_torn() {
    let (dir, bytes) = Dir::filled();
    let start = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let torn = dir.dir.path().join("audit.jsonl.torn");
    for cut in start + 1..bytes.len() {
        fs::write(dir.path(), &bytes[..cut]).unwrap();
        let (mut journal, _) = dir.open().unwrap();
        assert_eq!(fs::read(dir.path()).unwrap(), &bytes[..start], "cut at {cut}");
        assert_eq!(fs::read(&torn).unwrap(), [&bytes[start..cut], b"\n"].concat());
        journal.daemon_start(at(), tool()).unwrap();
        assert_eq!(verify(&dir.path()).unwrap().last_seq, Some(6));
        fs::remove_file(&torn).unwrap();
    }
}

#[test]
fn zero_bytes_left_by_a_power_cut_are_a_torn_line() {
    let (dir, mut bytes) = Dir::filled();
    let len = bytes.len();
    bytes.extend([0; 4096]);
    fs::write(dir.path(), &bytes).unwrap();
    dir.open().unwrap();
    assert_eq!(fs::read(dir.path()).unwrap(), &bytes[..len]);
}

#[test]
fn a_whole_line_that_is_wrong_is_left_for_a_person() {
    let (dir, bytes) = Dir::filled();
    let text = String::from_utf8(bytes).unwrap().replace("SIGTERM", "SIGKILL");
    fs::write(dir.path(), &text).unwrap();
    let error = dir.open().unwrap_err();
    assert!(matches!(error, AuditError::Broken { line: 6, source: Fault::Hash { .. }, .. }), "{error:?}");
    assert_eq!(fs::read_to_string(dir.path()).unwrap(), text);
}

#[test]
fn damage_before_the_last_line_is_left_for_a_person() {
    let (dir, bytes) = Dir::filled();
    fs::write(dir.path(), &bytes[1..]).unwrap();
    assert!(matches!(dir.open(), Err(AuditError::Broken { line: 1, source: Fault::NotJson, .. })));
}

#[test]
fn a_new_file_goes_on_from_a_rotated_one() {
    let dir = Dir::new();
    let (mut journal, _) = dir.open().unwrap();
    drop(journal.intent(at(), "leak-1".to_owned(), intent()).unwrap());
    fs::rename(dir.path(), dir.dir.path().join("audit.jsonl.1")).unwrap();
    let (journal, open) = dir.open().unwrap();
    assert_eq!((journal.sequence(), open.len()), (3, 1));
    let report = verify(&dir.path()).unwrap();
    assert_eq!((report.records, report.first_seq), (1, Some(3)));
}

#[test]
fn a_second_writer_is_refused() {
    let dir = Dir::new();
    let (first, _) = dir.open().unwrap();
    assert!(matches!(dir.open(), Err(AuditError::InUse { .. })));
    drop(first);
    assert!(dir.open().is_ok());
}

#[test]
fn a_symbolic_link_a_fifo_and_a_directory_are_refused() {
    let dir = Dir::new();
    let elsewhere = dir.dir.path().join("elsewhere");
    symlink(&elsewhere, dir.path()).unwrap();
    assert!(matches!(dir.open(), Err(AuditError::Open { .. })));
    assert!(!elsewhere.exists());
    fs::remove_file(dir.path()).unwrap();

    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path(), rustix::fs::Mode::RUSR).unwrap();
    assert!(dir.open().is_err());
    fs::remove_file(dir.path()).unwrap();

    fs::create_dir(dir.path()).unwrap();
    assert!(dir.open().is_err());
}

#[test]
fn a_full_disk_poisons() {
    let dir = Dir::new();
    let (mut journal, _) = dir.open().unwrap();
    journal.replace_file(OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert!(matches!(journal.daemon_start(at(), tool()), Err(AuditError::Write { .. })));
    journal.replace_file(OpenOptions::new().append(true).open(dir.path()).unwrap());
    let refused = journal.intent(at(), "leak-1".to_owned(), intent());
    assert!(matches!(refused, Err(AuditError::Poisoned { .. })));
    drop(journal);
    assert!(dir.open().unwrap().0.intent(at(), "leak-1".to_owned(), intent()).is_ok());
}

/// A pipe takes the bytes and cannot make them durable.
#[test]
fn a_failed_sync_poisons_and_gives_no_intent() {
    let dir = Dir::new();
    let (mut journal, _) = dir.open().unwrap();
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    journal.replace_file(File::from(writer));
    let refused = journal.intent(at(), "leak-1".to_owned(), intent());
    assert!(matches!(refused, Err(AuditError::Sync { .. })));
    assert!(matches!(journal.daemon_start(at(), tool()), Err(AuditError::Poisoned { .. })));
}
