//! The audit journal on a disk that is really full.
#![expect(clippy::tests_outside_test_module, reason = "the whole file is a test")]
#![expect(clippy::unwrap_used, reason = "a step of a test that fails fails the test")]
#![expect(clippy::disallowed_methods, reason = "fills and frees a disk that it mounted")]

use std::fs;
use std::path::Path;
use std::thread;

use jiff::Timestamp;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use reaper_userspace::audit::{AuditError, Journal, Node, Stamp, verify};
use reaper_userspace::time::BootTime;

fn open(path: &Path) -> Result<Journal, AuditError> {
    let node = Node { boot: "b".to_owned(), name: "n".to_owned() };
    Journal::open(path, node, at()).map(|(journal, _)| journal)
}

fn at() -> Stamp {
    Stamp { wall: Timestamp::UNIX_EPOCH, boot: BootTime::from_nanos(1) }
}

/// Mounts a tmpfs of two pages where only this thread can see it, so that nothing has to be unmounted.
fn mount_two_pages(at: &Path) {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("size=8k")).unwrap();
}

/// The kernel writes the part of the line that fits: the half line that must never be continued.
fn a_short_write_poisons_and_is_moved_aside(dir: &Path) {
    mount_two_pages(dir);
    let path = dir.join("audit.jsonl");
    let filler = dir.join("filler");
    let mut journal = open(&path).unwrap();
    fs::write(&filler, [0; 4096]).unwrap();

    // Records are bounded: one is shorter than a page, two are not.
    let long = "x".repeat(6000);
    journal.daemon_stop(at(), long.clone()).unwrap();
    let refused = journal.daemon_stop(at(), long);
    assert!(matches!(refused, Err(AuditError::Write { .. })), "{refused:?}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 4096, "the kernel wrote what fitted");

    fs::remove_file(&filler).unwrap();
    let refused = journal.daemon_stop(at(), "short".to_owned());
    assert!(matches!(refused, Err(AuditError::Poisoned { .. })), "{refused:?}");
    assert!(verify(&path).is_err());

    drop(journal);
    open(&path).unwrap().daemon_stop(at(), "short".to_owned()).unwrap();
    assert_eq!(verify(&path).unwrap().records, 3);
    assert!(fs::read_to_string(dir.join("audit.jsonl.torn")).unwrap().contains("xxx"));
}

#[test]
fn a_full_disk_leaves_no_half_line_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    thread::spawn(move || a_short_write_poisons_and_is_moved_aside(&path)).join().unwrap();
}
