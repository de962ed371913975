//! mounts on the running kernel: other mount namespaces, busy, covered and replaced mounts.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "fixtures make and end real processes and mounts")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use reaper_userspace::fact::MountFact;
use reaper_userspace::ident::{Lookup, ProcessKey, StartTicks, Tgid};
use reaper_userspace::mounts::{MountsError, Unmount, below, holders, unmount};
use reaper_userspace::procfs::{all, start_of};
use reaper_userspace::time::BootTime;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// A process in a mount namespace of its own, where a script has mounted what the test needs below `$D`.
struct Elsewhere {
    child: Child,
    dir: TempDir,
}

impl Elsewhere {
    /// The script ends with an `exec` of what keeps the namespace, and makes `$D/ready` before.
    fn start(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("set -e; cd /; {script}");
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", &script]).env("D", dir.path());
        let elsewhere = Self { child: command.spawn().unwrap(), dir };
        elsewhere.wait_ready();
        elsewhere
    }

    #[track_caller]
    fn wait_ready(&self) {
        let start = Instant::now();
        while !self.path("ready").exists() {
            assert!(start.elapsed() < Duration::from_secs(10), "the script failed or hangs");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn key(&self) -> ProcessKey {
        let tgid = Tgid::new(self.child.id().into()).unwrap();
        ProcessKey { tgid, start: found(start_of(tgid)) }
    }

    fn mounts(&self, prefix: &Path) -> Vec<MountFact> {
        found(below(self.key(), prefix, &start_of))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[track_caller]
fn found<T>(answer: Lookup<T>) -> T {
    match answer {
        Lookup::Found(value) => value,
        Lookup::NotFound => panic!("not found"),
        Lookup::Unavailable(reason) => panic!("{reason}"),
    }
}

fn soon() -> BootTime {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
    BootTime::from_nanos(u64::try_from(now.as_nanos()).unwrap()).after(Duration::from_secs(5))
}

fn end(mount: &MountFact) -> Result<Unmount, MountsError> {
    unmount(mount, &start_of, soon())
}

#[test]
fn mounts_of_another_namespace_are_listed_outermost_first_by_component() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/root fs" "$D/root fs2"; mount -t tmpfs t "$D/root fs2"; mount -t tmpfs t "$D/root fs"
           mkdir "$D/root fs/a\\b"; mount -t tmpfs t "$D/root fs/a\\b"; touch "$D/ready"; exec sleep 1000"#,
    );
    let prefix = elsewhere.path("root fs");
    let mounts = elsewhere.mounts(&prefix);
    let targets: Vec<_> = mounts.iter().map(|mount| mount.target.clone()).collect();
    assert_eq!(targets, [prefix.clone(), prefix.join("a\\b")]);
    let ours = Tgid::new(std::process::id().into()).unwrap();
    let ours = ProcessKey { tgid: ours, start: found(start_of(ours)) };
    assert_eq!(below(ours, &prefix, &start_of), Lookup::Found(vec![]), "not in our namespace");
}

#[test]
fn a_process_that_is_gone_gives_no_answer() {
    let mut elsewhere = Elsewhere::start(r#"touch "$D/ready"; exec sleep 1000"#);
    let key = elsewhere.key();
    let earlier = ProcessKey { start: StartTicks::from_ticks(1), ..key };
    let answer = below(earlier, Path::new("/"), &start_of);
    assert!(answer.unavailable().is_some_and(|reason| reason.contains("gone")), "{answer:?}");
    let unsure = |_| Lookup::Unavailable("no start time".to_owned());
    assert!(below(key, Path::new("/"), &unsure).unavailable().is_some());
    elsewhere.child.kill().unwrap();
    elsewhere.child.wait().unwrap();
    assert!(below(key, Path::new("/"), &start_of).unavailable().is_some());
    assert!(below(key, Path::new("relative"), &start_of).unavailable().is_some());
}

#[test]
fn a_mount_of_another_namespace_is_unmounted_there() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/rootfs"; mount -t tmpfs t "$D/rootfs"; mkdir "$D/rootfs/in"
           mount -t tmpfs t "$D/rootfs/in"; touch "$D/ready"; exec sleep 1000"#,
    );
    let before = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let mounts = elsewhere.mounts(&elsewhere.path("rootfs"));
    assert!(end(&mounts[0]).unwrap_err().is_busy(), "another mount is below it");
    for mount in mounts.iter().rev() {
        assert_eq!(end(mount).unwrap(), Unmount::Unmounted);
        assert_eq!(end(mount).unwrap(), Unmount::AlreadyGone);
    }
    assert_eq!(elsewhere.mounts(&elsewhere.path("rootfs")), []);
    assert_eq!(before, fs::read_to_string("/proc/thread-self/mountinfo").unwrap(), "we never left");
}

#[test]
fn a_busy_mount_stays() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/rootfs"; mount -t tmpfs t "$D/rootfs"; cd "$D/rootfs"; touch "$D/ready"; exec sleep 1000"#,
    );
    let mounts = elsewhere.mounts(&elsewhere.path("rootfs"));
    let error = end(&mounts[0]).unwrap_err();
    assert!(error.is_busy() && !error.is_deadline(), "{error}");
    assert_eq!(elsewhere.mounts(&elsewhere.path("rootfs")), mounts);
}

#[test]
fn a_covered_or_replaced_mount_is_not_taken_for_the_one_in_its_place() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/rootfs"; mount -t tmpfs first "$D/rootfs"; mount -t tmpfs second "$D/rootfs"
           touch "$D/ready"; exec sleep 1000"#,
    );
    let mounts = elsewhere.mounts(&elsewhere.path("rootfs"));
    let [covered, visible] = mounts.as_slice() else { panic!("{mounts:?}") };
    assert_eq!(end(covered).unwrap(), Unmount::OtherMount(visible.mount_id));
    let replaced = MountFact { mount_id: u32::MAX, ..visible.clone() };
    assert_eq!(end(&replaced).unwrap(), Unmount::OtherMount(visible.mount_id));
    assert_eq!(elsewhere.mounts(&elsewhere.path("rootfs")), mounts);
    assert_eq!(end(visible).unwrap(), Unmount::Unmounted);
    assert_eq!(end(covered).unwrap(), Unmount::Unmounted);
}

#[test]
fn a_mount_that_was_replaced_under_the_same_id_is_left_alone() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/rootfs"; mount -t tmpfs first "$D/rootfs"; touch "$D/ready"
           while [ -e "$D/ready" ]; do sleep 0.01; done
           umount "$D/rootfs"; mount -t tmpfs second "$D/rootfs"; touch "$D/ready"; exec sleep 1000"#,
    );
    let prefix = elsewhere.path("rootfs");
    let first = elsewhere.mounts(&prefix).remove(0);
    assert!(first.unique_id.is_some(), "Linux 6.8 and later tell it");
    fs::remove_file(elsewhere.path("ready")).unwrap();
    elsewhere.wait_ready();
    let second = elsewhere.mounts(&prefix).remove(0);
    // What makes the plain id worthless; it may differ if others mount at the same moment.
    let same_id = MountFact { mount_id: second.mount_id, ..first };
    assert_eq!(end(&same_id).unwrap(), Unmount::OtherMount(second.mount_id));
    assert_eq!(elsewhere.mounts(&prefix), [second]);
}

#[test]
fn another_incarnation_is_no_way_into_a_namespace() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/rootfs"; mount -t tmpfs t "$D/rootfs"; touch "$D/ready"; exec sleep 1000"#,
    );
    let mount = elsewhere.mounts(&elsewhere.path("rootfs")).remove(0);
    let mut other = mount.clone();
    other.namespace_of.start = StartTicks::from_ticks(1);
    assert!(matches!(end(&other), Err(MountsError::Gone { .. })));
    let unsure = |_| Lookup::Unavailable("no start time".to_owned());
    assert!(matches!(unmount(&mount, &unsure, soon()), Err(MountsError::Unidentified { .. })));
    assert_eq!(elsewhere.mounts(&elsewhere.path("rootfs")), [mount]);
}

#[test]
fn targets_are_those_of_the_process_s_own_root() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/node"; mount -t tmpfs t "$D/node"; cp /bin/busybox "$D/node/busybox"; mkdir "$D/node/rootfs"
           mount -t tmpfs t "$D/node/rootfs"; touch "$D/ready"; exec chroot "$D/node" /busybox sleep 1000"#,
    );
    let prefix = Path::new("/rootfs");
    let start = Instant::now();
    while elsewhere.mounts(prefix).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "chroot");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(end(&elsewhere.mounts(prefix)[0]).unwrap(), Unmount::Unmounted);
    assert_eq!(elsewhere.mounts(prefix), []);
}

#[test]
fn an_unmount_does_not_follow_a_symbolic_link() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/rootfs"; mount -t tmpfs t "$D/rootfs"; ln -s rootfs "$D/link"
           touch "$D/ready"; exec sleep 1000"#,
    );
    let mount = elsewhere.mounts(&elsewhere.path("rootfs")).remove(0);
    let link = MountFact { target: elsewhere.path("link"), ..mount.clone() };
    assert_eq!(end(&link).unwrap(), Unmount::AlreadyGone, "the table has no mount at the link");
    assert_eq!(elsewhere.mounts(&elsewhere.path("rootfs")), [mount]);
}

#[test]
fn a_bundle_that_became_a_symbolic_link_leads_nowhere() {
    let elsewhere = Elsewhere::start(
        r#"mkdir -p "$D/bundle/rootfs" "$D/other/rootfs"; mount -t tmpfs t "$D/bundle/rootfs"
           mount -t tmpfs t "$D/other/rootfs"; touch "$D/ready"; exec sleep 1000"#,
    );
    let mount = elsewhere.mounts(&elsewhere.path("bundle")).remove(0);
    let other = elsewhere.mounts(&elsewhere.path("other"));
    fs::rename(elsewhere.path("bundle"), elsewhere.path("away")).unwrap();
    std::os::unix::fs::symlink("other", elsewhere.path("bundle")).unwrap();
    assert_eq!(end(&mount).unwrap(), Unmount::AlreadyGone);
    assert_eq!(elsewhere.mounts(&elsewhere.path("other")), other);
    // The name that the link gives to a mount is no name of the table, and would not be followed if it were.
    let through = MountFact { target: elsewhere.path("bundle/rootfs"), ..other[0].clone() };
    assert_eq!(end(&through).unwrap(), Unmount::AlreadyGone);
    assert_eq!(elsewhere.mounts(&elsewhere.path("other")), other);
}

#[test]
fn holders_are_the_processes_of_other_namespaces_that_have_the_mount() {
    let elsewhere = Elsewhere::start(
        r#"mkdir "$D/rootfs"; mount -t tmpfs t "$D/rootfs"; touch "$D/ready"; exec sleep 1000"#,
    );
    let ours = Tgid::new(std::process::id().into()).unwrap();
    let ours = ProcessKey { tgid: ours, start: found(start_of(ours)) };
    let rootfs = elsewhere.path("rootfs");
    let processes = all().unwrap();
    let held = |prefix: &Path, outside| found(holders(prefix, outside, &processes)).processes;
    assert_eq!(held(&rootfs, ours), [elsewhere.key()]);
    assert_eq!(held(&rootfs, elsewhere.key()), []);
    assert_eq!(held(&elsewhere.path("root"), ours), []);
    let gone = ProcessKey { tgid: Tgid::new(i32::MAX.into()).unwrap(), ..ours };
    assert!(holders(&rootfs, gone, &processes).unavailable().is_some());
}
