//! systemd learns of a scope's end from its cgroup's events, so they must come before the directory goes.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use reaper_tests::CgroupView;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::place::{Leaked, SOON};

/// As systemd does it: looks at each event. True if it saw the end; without a further event it waits for ever.
fn is_told_of_the_end(watch: &OwnedFd, file: &Path) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(watch, &mut buffer);
    loop {
        let event = events.next().unwrap().events();
        if event.contains(ReadFlags::IGNORED) {
            return false;
        }
        let text = fs::read_to_string(file);
        if event.contains(ReadFlags::MODIFY) && text.is_ok_and(|text| text.contains("populated 0")) {
            return true;
        }
    }
}

#[test]
fn whoever_watches_a_scope_is_told_of_its_end_before_it_is_removed() {
    let Some(mut leak) = Leaked::new(CgroupView::V2) else { return };
    leak.path = format!("/{}/cri-containerd-leak.scope", leak.node.name());
    leak.cgroups().enter(&leak.path, &BTreeSet::new()).unwrap();
    leak.member();
    leak.freeze(&leak.path);
    let [dir] = leak.cgroups().dirs(&leak.path).try_into().unwrap();
    let file = dir.join("cgroup.events");
    let watch = inotify::init(CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, &file, WatchFlags::MODIFY).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(is_told_of_the_end(&watch, &file)));

    let report = leak.reap();
    leak.assert_gone(&report);
    assert_eq!(told.recv_timeout(SOON), Ok(true), "{report:#?}");
}
