//! cgroupfs on the running kernel: the v1 freezer hierarchy and cgroup v2, both mounted privately, so that the
//! same tests run on v1, hybrid and v2 nodes.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "fixtures make and end real cgroups, processes and mounts")]

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use reaper_userspace::cgroupfs::{
    CgroupControl as _, CgroupDir, HierarchyMount, Layout, LayoutMode, LayoutWarning, Removal, Reopened,
};
use reaper_userspace::fact::{Controllers, Freeze};
use reaper_userspace::ident::{CgroupPath, Hierarchy, Lookup, StartTicks, Tgid};
use reaper_userspace::time::BootTime;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// `freezer` (v1) and `unified` (v2) below a directory that only this thread's mount namespace shows.
struct Node {
    root: TempDir,
}

impl Node {
    fn enter() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let root = tempfile::tempdir().unwrap();
        for (name, fs_type, options) in [("freezer", "cgroup", Some("freezer")), ("unified", "cgroup2", None)]
        {
            let target = root.path().join(name);
            fs::create_dir(&target).unwrap();
            mount(Some("cgroup"), &target, Some(fs_type), MsFlags::empty(), options).unwrap();
        }
        Self { root }
    }

    fn layout(&self) -> Layout {
        Layout::discover(&[self.root.path().to_owned()]).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for name in ["freezer", "unified"] {
            let _gone = umount2(&self.root.path().join(name), MntFlags::MNT_DETACH);
        }
    }
}

/// A cgroup of our own in one hierarchy; its processes and everything below it end with it.
struct Scratch<'a> {
    mount: &'a HierarchyMount,
    path: CgroupPath,
    children: Vec<Child>,
}

impl<'a> Scratch<'a> {
    fn new(mount: &'a HierarchyMount) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("/reaper-test-world-{}-{count}", std::process::id());
        let path = CgroupPath::try_from(name.as_str()).unwrap();
        let scratch = Self { mount, path, children: Vec::new() };
        fs::create_dir(scratch.dir("")).unwrap();
        scratch
    }

    fn dir(&self, below: &str) -> PathBuf {
        self.mount.path().join(self.path.relative()).join(below)
    }

    fn path(&self, below: &str) -> CgroupPath {
        CgroupPath::try_from(self.path.as_path().join(below)).unwrap()
    }

    fn mkdir(&self, below: &str) -> CgroupDir {
        fs::create_dir(self.dir(below)).unwrap();
        self.open(below)
    }

    fn open(&self, below: &str) -> CgroupDir {
        found(self.mount.open(&self.path(below)))
    }

    fn write(&self, file: &str, value: &str) {
        fs::write(self.dir(file), value).unwrap();
    }

    fn sleeper(&mut self, below: &str) -> Tgid {
        self.run(below, Command::new("sleep").arg("1000"))
    }

    fn run(&mut self, below: &str, command: &mut Command) -> Tgid {
        let child = command.spawn().unwrap();
        let tgid = Tgid::new(child.id().into()).unwrap();
        self.children.push(child);
        fs::write(self.dir(below).join("cgroup.procs"), tgid.to_string()).unwrap();
        tgid
    }

    fn end_processes(&mut self) {
        for mut child in self.children.drain(..) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        thaw_all(&self.dir(""));
        self.end_processes();
        eventually("the test's cgroups are removed", || {
            remove_all(&self.dir(""));
            !self.dir("").exists()
        });
    }
}

fn thaw_all(dir: &Path) {
    for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        if dir.join(file).exists() {
            fs::write(dir.join(file), value).unwrap();
        }
    }
    for child in below(dir) {
        thaw_all(&child);
    }
}

fn remove_all(dir: &Path) {
    for child in below(dir) {
        remove_all(&child);
    }
    let _busy_or_gone = fs::remove_dir(dir);
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[track_caller]
fn found<T>(answer: Lookup<T>) -> T {
    match answer {
        Lookup::Found(value) => value,
        Lookup::NotFound => panic!("not found"),
        Lookup::Unavailable(reason) => panic!("{reason}"),
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn in_ms(millis: u64) -> BootTime {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
    BootTime::from_nanos(u64::try_from(now.as_nanos()).unwrap()).after(Duration::from_millis(millis))
}

fn any_start(_: Tgid) -> Lookup<StartTicks> {
    Lookup::Found(StartTicks::from_ticks(1))
}

/// Builds a C program: what it does to its own threads is beyond safe Rust.
fn compile(source: &str) -> (TempDir, Command) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.c"), source).unwrap();
    let mut cc = Command::new("cc");
    assert!(cc.args(["-pthread", "-o", "a.out", "a.c"]).current_dir(dir.path()).status().unwrap().success());
    let program = Command::new(dir.path().join("a.out"));
    (dir, program)
}

fn state(tgid: Tgid) -> String {
    let stat = fs::read_to_string(format!("/proc/{tgid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').next().unwrap().to_owned()
}

#[test]
fn every_hierarchy_of_the_machine_is_found_once_with_its_number() {
    let layout = Layout::discover(&[]).unwrap();
    let lines = fs::read_to_string("/proc/self/cgroup").unwrap();
    let mut numbers = Vec::new();
    for mount in layout.hierarchies() {
        numbers.push(mount.hierarchy());
        let line = format!("{}:{}:", mount.hierarchy().0, mount.name());
        assert!(lines.lines().any(|l| l.starts_with(&line)), "{line} in {lines}");
        assert!(mount.open(&CgroupPath::root()).found().is_some(), "{}", mount.path().display());
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), layout.warnings()), (count, &[][..]));
    assert!(count > 0);
}

#[test]
fn a_root_may_be_a_directory_of_hierarchies_or_one_of_them() {
    let node = Node::enter();
    assert_eq!(node.layout().mode(), LayoutMode::Hybrid);
    let one = |name| Layout::discover(&[node.root.path().join(name)]).unwrap();
    let (v1, v2) = (one("freezer"), one("unified"));
    assert_eq!((v1.mode(), v2.mode()), (LayoutMode::V1, LayoutMode::V2));
    assert_eq!(v1.hierarchies()[0].controllers(), Controllers::Freezer);
    assert_eq!(v2.hierarchies()[0].hierarchy(), Hierarchy::UNIFIED);
}

#[test]
fn a_second_mount_of_a_hierarchy_and_a_hidden_mount_add_nothing() {
    let node = Node::enter();
    let again = node.root.path().join("again");
    fs::create_dir(&again).unwrap();
    mount(Some("cgroup"), &again, Some("cgroup2"), MsFlags::empty(), None::<&str>).unwrap();
    let freezer = node.root.path().join("freezer");
    mount(Some("tmpfs"), &freezer, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let layout = node.layout();
    umount2(&again, MntFlags::MNT_DETACH).unwrap();
    umount2(&freezer, MntFlags::MNT_DETACH).unwrap();
    let numbers: Vec<_> = layout.hierarchies().iter().map(HierarchyMount::hierarchy).collect();
    assert_eq!(numbers, [Hierarchy::UNIFIED]);
}

#[test]
fn a_private_cgroup_namespace_is_a_warning() {
    let node = Node::enter();
    let layout = Layout::discover(&[node.root.path().join("freezer")]).unwrap();
    let scratch = Scratch::new(&layout.hierarchies()[0]);
    let tid = rustix::thread::gettid().as_raw_nonzero().to_string();
    scratch.write("tasks", &tid);
    unshare(CloneFlags::CLONE_NEWCGROUP).unwrap();
    let warnings = node.layout().warnings().to_vec();
    fs::write(node.root.path().join("freezer/tasks"), &tid).unwrap();
    let namespaced =
        |w: &LayoutWarning| matches!(w, LayoutWarning::Namespaced { file: "/proc/1/cgroup", .. });
    assert!(warnings.iter().any(namespaced), "{warnings:?}");
}

#[test]
fn only_a_missing_directory_is_not_found() {
    let node = Node::enter();
    for hierarchy in node.layout().hierarchies() {
        let scratch = Scratch::new(hierarchy);
        assert!(hierarchy.open(&scratch.path("missing")).is_not_found());
        assert!(hierarchy.open(&scratch.path("cgroup.procs")).unavailable().is_some(), "a file");
        let covered = scratch.mkdir("covered");
        mount(Some("t"), &scratch.dir("covered"), Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let answer = hierarchy.open(&scratch.path("covered"));
        umount2(&scratch.dir("covered"), MntFlags::empty()).unwrap();
        assert!(answer.unavailable().is_some_and(|reason| reason.contains("covered")), "{answer:?}");
        assert_eq!(covered.members(), Lookup::Found(vec![]));
    }
}

#[test]
fn a_recreated_path_is_another_cgroup() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let scratch = Scratch::new(mount);
        let first = scratch.mkdir("leaf");
        assert!(matches!(mount.reopen(first.path(), first.cgroup()), Reopened::Same(_)));
        fs::remove_dir(scratch.dir("leaf")).unwrap();
        assert!(matches!(mount.reopen(first.path(), first.cgroup()), Reopened::Gone));
        let second = scratch.mkdir("leaf");
        assert_ne!(first.cgroup(), second.cgroup());
        let reopened = mount.reopen(first.path(), first.cgroup());
        assert!(matches!(reopened, Reopened::OtherCgroup(found) if found == second.cgroup()), "{reopened:?}");
        let removal = scratch.open("").remove_child(OsStr::new("leaf"), first.cgroup()).unwrap();
        assert_eq!(removal, Removal::OtherCgroup(second.cgroup()));
        assert_eq!(second.members(), Lookup::Found(vec![]), "the successor lives");
    }
}

#[test]
fn the_directory_of_a_removed_cgroup_never_reaches_its_successor() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let first = scratch.mkdir("leaf");
        let watch = first.watch();
        fs::remove_dir(scratch.dir("leaf")).unwrap();
        scratch.mkdir("leaf");
        scratch.sleeper("leaf");
        assert!(first.members().is_not_found());
        assert!(first.populated().is_not_found());
        assert!(first.freeze_state().is_not_found());
        assert!(first.frozen_from_above().is_not_found());
        assert!(first.children().is_not_found());
        assert!(first.has_kill().is_not_found());
        assert!(first.watch().is_not_found());
        assert!(first.freeze().unwrap_err().is_gone());
        assert!(first.kill().unwrap_err().is_gone());
        assert_eq!(first.remove_child(OsStr::new("x"), first.cgroup()).unwrap(), Removal::AlreadyGone);
        if let Lookup::Found(watch) = watch {
            assert!(watch.await_unpopulated(in_ms(1000)).is_not_found());
        }
    }
}

#[test]
fn what_a_hierarchy_lacks_is_not_taken_for_a_missing_cgroup() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let root = found(mount.open(&CgroupPath::root()));
        assert_eq!(root.has_kill(), Lookup::Found(false));
        assert_eq!(root.freeze_state(), Lookup::Found(Freeze::None));
        assert!(root.kill().unwrap_err().is_unsupported());
        let watch = Scratch::new(mount).open("").watch();
        assert_eq!(watch.found().is_some(), mount.controllers() == Controllers::Unified);
        assert!(!watch.is_not_found());
    }
}

#[test]
fn a_leaf_without_processes_is_populated_through_its_children() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        scratch.mkdir("init");
        scratch.mkdir("init/deeper");
        let tgid = scratch.sleeper("init/deeper");
        let tree = found(mount.tree(&scratch.path(""), &any_start));
        let shape: Vec<_> =
            tree.nodes.iter().map(|n| (n.path.clone(), n.members.found().unwrap().len())).collect();
        let expected = [("", 0), ("init", 0), ("init/deeper", 1)].map(|(path, n)| (scratch.path(path), n));
        assert_eq!(shape, expected);
        assert_eq!(tree.populated, Lookup::Found(true));
        assert!(tree.lists(tgid));
        scratch.end_processes();
        eventually("unpopulated after the end", || {
            let tree = found(mount.tree(&scratch.path(""), &any_start));
            tree.populated == Lookup::Found(false) && tree.members().count() == 0
        });
    }
}

#[test]
fn a_vanished_member_is_left_out_and_an_unknown_one_spoils_the_list() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        scratch.sleeper("");
        let members = |start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>| {
            found(mount.tree(&scratch.path(""), start_of)).nodes[0].members.clone()
        };
        assert_eq!(members(&|_| Lookup::NotFound), Lookup::Found(vec![]));
        let unknown = || "no start time".to_owned();
        assert_eq!(members(&|_| Lookup::Unavailable(unknown())), Lookup::Unavailable(unknown()));
    }
}

#[test]
fn a_child_that_vanishes_during_the_walk_is_left_out() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        scratch.mkdir("child");
        scratch.sleeper("");
        let vanish = |_| {
            let _gone = fs::remove_dir(scratch.dir("child"));
            Lookup::Found(StartTicks::from_ticks(1))
        };
        let tree = found(mount.tree(&scratch.path(""), &vanish));
        assert_eq!((tree.nodes.len(), tree.unanswered()), (1, None));
        assert!(mount.tree(&scratch.path("child"), &any_start).is_not_found());
    }
}

#[test]
fn a_threaded_cgroup_is_unanswered_and_populated() {
    let node = Node::enter();
    let layout = node.layout();
    let mut scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    let threaded = scratch.mkdir("threaded");
    scratch.write("threaded/cgroup.type", "threaded");
    let tgid = scratch.sleeper("");
    scratch.write("threaded/cgroup.threads", &tgid.to_string());
    assert!(threaded.members().unavailable().is_some());
    assert_eq!(threaded.populated(), Lookup::Found(true));
    assert!(threaded.kill().unwrap_err().is_threaded());
    let tree = found(scratch.mount.tree(&scratch.path(""), &any_start));
    assert_eq!(tree.populated, Lookup::Found(true));
    assert!(tree.unanswered().is_some_and(|reason| reason.contains("cgroup.procs")), "{tree:?}");
    assert!(tree.lists(tgid), "the domain lists it");
}

#[test]
fn a_freeze_shows_in_the_cgroup_and_below_it() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let child = scratch.mkdir("child");
        scratch.sleeper("child");
        let parent = scratch.open("");
        let states = || (found(parent.freeze_state()), found(child.freeze_state()));
        assert_eq!(states(), (Freeze::Thawed, Freeze::Thawed));
        parent.freeze().unwrap();
        eventually("frozen", || states() == (Freeze::Frozen, Freeze::Frozen));
        assert_eq!(parent.frozen_from_above(), Lookup::Found(false));
        assert_eq!(child.frozen_from_above(), Lookup::Found(true));
        child.thaw().unwrap();
        assert_eq!(child.freeze_state(), Lookup::Found(Freeze::Frozen), "an ancestor holds it");
        parent.thaw().unwrap();
        eventually("thawed", || states() == (Freeze::Thawed, Freeze::Thawed));
    }
}

#[test]
fn a_task_that_does_not_stop_keeps_the_cgroup_freezing() {
    let node = Node::enter();
    let layout = node.layout();
    let mut scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    // A filesystem whose server never answers: its callers can be killed but not stopped.
    let server = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let target = node.root.path().join("mute");
    fs::create_dir(&target).unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    mount(Some("mute"), &target, Some("fuse"), MsFlags::empty(), Some(options.as_str())).unwrap();
    let caller = scratch.run("", Command::new("stat").arg(target.join("file")));
    eventually("the caller waits in D", || state(caller) == "D");
    let dir = scratch.open("");
    dir.freeze().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let seen = dir.freeze_state();
    drop(server);
    umount2(&target, MntFlags::MNT_DETACH).unwrap();
    assert_eq!(seen, Lookup::Found(Freeze::Freezing));
}

#[test]
fn a_process_whose_leader_has_exited_is_listed_and_populated() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let (_dir, mut program) = compile(
            "#include <pthread.h>\n#include <unistd.h>\nstatic void *f(void *a) { for (;;) pause(); return a; }\n\
             int main(void) { pthread_t t; usleep(100000); pthread_create(&t, 0, f, 0); pthread_exit(0); }",
        );
        let tgid = scratch.run("", &mut program);
        eventually("the leader is a zombie", || state(tgid) == "Z");
        let tree = found(mount.tree(&scratch.path(""), &any_start));
        assert!(tree.lists(tgid));
        assert_eq!(tree.populated, Lookup::Found(true));
    }
}

#[test]
fn a_removal_is_busy_then_done_then_already_gone() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let leaf = scratch.mkdir("leaf");
        scratch.sleeper("leaf");
        let parent = scratch.open("");
        let remove = || parent.remove_child(OsStr::new("leaf"), leaf.cgroup());
        assert!(remove().unwrap_err().is_busy());
        scratch.end_processes();
        eventually("removed", || remove().is_ok_and(|removal| removal == Removal::Removed));
        assert_eq!(remove().unwrap(), Removal::AlreadyGone);
    }
}

#[test]
fn the_wait_ends_with_the_last_process_or_with_the_deadline() {
    let node = Node::enter();
    let layout = node.layout();
    let mut scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    scratch.mkdir("child");
    scratch.sleeper("child");
    let dir = scratch.open("");
    let watch = found(dir.watch());
    assert_eq!(watch.await_unpopulated(in_ms(20)), Lookup::Found(false));
    assert_eq!(dir.has_kill(), Lookup::Found(true));
    dir.kill().unwrap();
    assert_eq!(watch.await_unpopulated(in_ms(5000)), Lookup::Found(true));
}

#[test]
fn a_tree_that_is_too_deep_is_no_answer() {
    let node = Node::enter();
    let layout = node.layout();
    let scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    fs::create_dir_all(scratch.dir(&"d/".repeat(63))).unwrap();
    assert_eq!(found(scratch.mount.tree(&scratch.path(""), &any_start)).nodes.len(), 64);
    fs::create_dir_all(scratch.dir(&"d/".repeat(64))).unwrap();
    let answer = scratch.mount.tree(&scratch.path(""), &any_start);
    assert!(answer.unavailable().is_some_and(|reason| reason.contains("64 levels")), "{answer:?}");
}

#[test]
fn names_are_bytes() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let scratch = Scratch::new(mount);
        let name = OsStr::from_bytes(b"a \xff\x1b[2J");
        fs::create_dir(scratch.dir("").join(name)).unwrap();
        assert_eq!(scratch.open("").children(), Lookup::Found(vec![name.to_owned()]));
        let tree = found(mount.tree(&scratch.path(""), &any_start));
        assert_eq!(tree.nodes[1].path.name(), Some(name));
    }
}
