//! What cannot end is named, within the bound of one act.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use reaper_tests::{Cgroups, wait_until};
use reaper_userspace::audit::Outcome;
use reaper_userspace::ident::{ProcessKey, Tgid};
use reaper_userspace::reap::BOUND;
use reaper_userspace::{mounts, procfs};

use crate::in_both_views;
use crate::place::{Leaked, SOON, found};

/// A busy machine wakes a test up late.
const LATE: Duration = Duration::from_millis(700);

in_both_views! {
    a_process_that_cannot_die_is_named_within_the_bound
    a_rootfs_that_another_namespace_keeps_busy_is_partial_and_its_holder_named
}

/// A freezer that is not the leak's to open keeps every signal from the process; v2's own would let SIGKILL through.
fn a_process_that_cannot_die_is_named_within_the_bound(leak: &mut Leaked) {
    let all = Cgroups::mounted().unwrap();
    let Ok(freezer) = all.freezer() else { return };
    if !freezer.is_freezer() {
        return;
    }
    let member = leak.member();
    let ice = freezer.dir(leak.node.name());
    std::fs::create_dir_all(ice.join("leak")).unwrap();
    std::fs::write(ice.join("leak/cgroup.procs"), member.pid.to_string()).unwrap();
    std::fs::write(ice.join("freezer.state"), "FROZEN").unwrap();
    let state = || std::fs::read_to_string(ice.join("freezer.state")).unwrap();
    wait_until("ice", SOON, || Ok(state() == "FROZEN\n")).unwrap();
    let started = Instant::now();
    let report = leak.reap();
    let took = started.elapsed();
    std::fs::write(ice.join("freezer.state"), "THAWED").unwrap();
    println!("{:?}: stuck after {took:.2?}", leak.node.view());
    assert_eq!(report.outcome(), Outcome::Stuck, "{report:#?}");
    assert!(took >= BOUND && took < BOUND.saturating_add(LATE), "{took:?}");
    let named: BTreeSet<u32> = report.remaining.iter().map(|one| one.process.tgid.get()).collect();
    assert_eq!(named, BTreeSet::from([member.pid]), "{report:#?}");
    assert!(!report.left_over.is_empty(), "{report:#?}");
    wait_until("its end after the thaw", SOON, || Ok(!member.is_alive()?)).unwrap();
    if leak.node.view() == reaper_tests::CgroupView::V2 {
        wait_until("rmdir", SOON, || {
            Ok(std::fs::remove_dir(ice.join("leak")).is_ok() && std::fs::remove_dir(&ice).is_ok())
        })
        .unwrap();
    }
}

fn a_rootfs_that_another_namespace_keeps_busy_is_partial_and_its_holder_named(leak: &mut Leaked) {
    leak.member();
    let rootfs = leak.node.state().join("rootfs");
    std::fs::create_dir(&rootfs).unwrap();
    let mut mount = Command::new("mount");
    assert!(mount.args(["-t", "tmpfs", "tmpfs"]).arg(&rootfs).status().unwrap().success());
    // The mount is propagated into a namespace of its own, where a working directory keeps it busy.
    let mut holder = Command::new("unshare");
    holder.args(["-m", "--propagation", "unchanged", "sh", "-c", "cd \"$0\"; exec sleep 1000"]).arg(&rootfs);
    let holder = leak.spawn(&mut holder);
    wait_until("a holder", SOON, || Ok(holder.comm() == "sleep")).unwrap();
    let own = Tgid::new(std::process::id().into()).unwrap();
    let own = ProcessKey { tgid: own, start: found(procfs::start_of(own)) };
    leak.mounts = found(mounts::below(own, &rootfs, &procfs::start_of));
    assert_eq!(leak.mounts.len(), 1);
    let report = leak.reap();
    assert_eq!(report.outcome(), Outcome::Partial, "{report:#?}");
    assert!(leak.cgroups().dirs(&leak.path).is_empty(), "{report:#?}");
    let failed: Vec<_> =
        report.steps.iter().filter_map(|step| Some((step.op, step.error.as_ref()?))).collect();
    let [("umount", reason)] = failed.as_slice() else { panic!("{report:#?}") };
    assert!(reason.contains(&holder.pid.to_string()), "{reason}");
    leak.end(holder);
}
