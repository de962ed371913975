//! What cannot end is named, within the bound of one act.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use reaper_tests::{Cgroups, Incarnation, MountedHierarchy, wait_until};
use reaper_userspace::audit::Outcome;
use reaper_userspace::daemon::clock;
use reaper_userspace::ident::{ProcessKey, Tgid};
use reaper_userspace::reap::{BOUND, Timing};
use reaper_userspace::{mounts, procfs};

use crate::in_both_views;
use crate::place::{Leaked, SOON, found};

/// A busy machine wakes a test up late.
const LATE: Duration = Duration::from_millis(700);

in_both_views! {
    a_process_that_cannot_die_is_named_within_the_bound
    a_removal_past_its_deadline_removes_nothing_more
    a_single_directory_is_not_removed_past_the_deadline
    a_rootfs_that_another_namespace_keeps_busy_is_partial_and_its_holder_named
}

fn a_removal_past_its_deadline_removes_nothing_more(leak: &mut Leaked) {
    let child = format!("{}/child", leak.path);
    leak.cgroups().enter(&leak.path, &BTreeSet::new()).unwrap();
    leak.cgroups().enter(&child, &BTreeSet::new()).unwrap();
    let made = leak.cgroups().dirs(&child).len();
    assert!(made > 0);
    let armed = leak.arm(leak.proof()).unwrap();
    let fresh = leak.proof();
    let late = || Timing { now: clock::boot, deadline: clock::boot() };
    let report = leak.fire_by(armed, &fresh, late).unwrap();
    assert_eq!(report.outcome(), Outcome::Stuck, "{report:#?}");
    assert_eq!(leak.cgroups().dirs(&child).len(), made, "{report:#?}");
}

fn a_single_directory_is_not_removed_past_the_deadline(leak: &mut Leaked) {
    let made = leak.cgroups().dirs(&leak.path);
    let armed = leak.arm(leak.proof()).unwrap();
    let fresh = leak.proof();
    let late = || Timing { now: clock::boot, deadline: clock::boot() };
    let report = leak.fire_by(armed, &fresh, late).unwrap();
    assert_eq!(leak.cgroups().dirs(&leak.path), made, "{report:#?}");
    assert_eq!(report.outcome(), Outcome::Stuck, "{report:#?}");
}

/// A frozen cgroup of the v1 freezer above one that holds a process.
struct Ice(PathBuf);

impl Ice {
    fn around(member: Incarnation, freezer: &MountedHierarchy, name: &str) -> Self {
        let ice = Self(freezer.dir(name));
        std::fs::create_dir_all(ice.0.join("leak")).unwrap();
        std::fs::write(ice.0.join("leak/cgroup.procs"), member.pid.to_string()).unwrap();
        std::fs::write(ice.0.join("freezer.state"), "FROZEN").unwrap();
        let state = || std::fs::read_to_string(ice.0.join("freezer.state")).unwrap();
        wait_until("ice", SOON, || Ok(state() == "FROZEN\n")).unwrap();
        ice
    }
}

impl Drop for Ice {
    fn drop(&mut self) {
        std::fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
        // On v1 these are directories of the leak itself, which its own end removes; here they are empty soon.
        let gone =
            || Ok(std::fs::remove_dir(self.0.join("leak")).is_ok() && std::fs::remove_dir(&self.0).is_ok());
        let _in_use_or_removed = wait_until("rmdir", Duration::from_millis(500), gone);
    }
}

/// A freezer that is not the leak's to open keeps every signal from the process; v2's own would let SIGKILL through.
fn a_process_that_cannot_die_is_named_within_the_bound(leak: &mut Leaked) {
    let all = Cgroups::mounted().unwrap();
    let Ok(freezer) = all.freezer() else { return };
    if !freezer.is_freezer() {
        return;
    }
    let member = leak.member();
    let ice = Ice::around(member, freezer, leak.node.name());
    let started = Instant::now();
    let report = leak.reap();
    let took = started.elapsed();
    drop(ice);
    println!("{:?}: stuck after {took:.2?}", leak.node.view());
    assert_eq!(report.outcome(), Outcome::Stuck, "{report:#?}");
    assert!(took >= BOUND && took < BOUND.saturating_add(LATE), "{took:?}");
    let named: BTreeSet<u32> = report.remaining.iter().map(|one| one.process.tgid.get()).collect();
    assert_eq!(named, BTreeSet::from([member.pid]), "{report:#?}");
    assert!(!report.left_over.is_empty(), "{report:#?}");
    wait_until("its end after the thaw", SOON, || Ok(!member.is_alive()?)).unwrap();
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
