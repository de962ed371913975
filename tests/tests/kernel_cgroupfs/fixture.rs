//! Real cgroups in privately mounted hierarchies, and processes in them; all of it ends with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use reaper_userspace::cgroupfs::{CgroupDir, HierarchyMount, Layout};
use reaper_userspace::ident::{CgroupPath, Lookup, StartTicks, Tgid};
use reaper_userspace::time::BootTime;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// `freezer` (v1) and `unified` (v2) below a directory that only this thread's mount namespace shows.
pub(crate) struct Node {
    pub(crate) root: TempDir,
}

impl Node {
    pub(crate) fn enter() -> Self {
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

    pub(crate) fn layout(&self) -> Layout {
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
pub(crate) struct Scratch<'a> {
    pub(crate) mount: &'a HierarchyMount,
    path: CgroupPath,
    children: Vec<Child>,
}

impl<'a> Scratch<'a> {
    pub(crate) fn new(mount: &'a HierarchyMount) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("/reaper-test-world-{}-{count}", std::process::id());
        let path = CgroupPath::try_from(name.as_str()).unwrap();
        let scratch = Self { mount, path, children: Vec::new() };
        fs::create_dir(scratch.dir("")).unwrap();
        scratch
    }

    pub(crate) fn dir(&self, below: &str) -> PathBuf {
        self.mount.path().join(self.path.relative()).join(below)
    }

    pub(crate) fn path(&self, below: &str) -> CgroupPath {
        CgroupPath::try_from(self.path.as_path().join(below)).unwrap()
    }

    pub(crate) fn mkdir(&self, below: &str) -> CgroupDir {
        fs::create_dir(self.dir(below)).unwrap();
        self.open(below)
    }

    pub(crate) fn open(&self, below: &str) -> CgroupDir {
        found(self.mount.open(&self.path(below)))
    }

    pub(crate) fn write(&self, file: &str, value: &str) {
        fs::write(self.dir(file), value).unwrap();
    }

    pub(crate) fn sleeper(&mut self, below: &str) -> Tgid {
        self.run(below, Command::new("sleep").arg("1000"))
    }

    pub(crate) fn run(&mut self, below: &str, command: &mut Command) -> Tgid {
        let child = command.spawn().unwrap();
        let tgid = Tgid::new(child.id().into()).unwrap();
        self.children.push(child);
        fs::write(self.dir(below).join("cgroup.procs"), tgid.to_string()).unwrap();
        tgid
    }

    pub(crate) fn end_processes(&mut self) {
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
pub(crate) fn found<T>(answer: Lookup<T>) -> T {
    match answer {
        Lookup::Found(value) => value,
        Lookup::NotFound => panic!("not found"),
        Lookup::Unavailable(reason) => panic!("{reason}"),
    }
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn in_ms(millis: u64) -> BootTime {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
    BootTime::from_nanos(u64::try_from(now.as_nanos()).unwrap()).after(Duration::from_millis(millis))
}

pub(crate) fn any_start(_: Tgid) -> Lookup<StartTicks> {
    Lookup::Found(StartTicks::from_ticks(1))
}

/// Builds a C program: what it does to its own threads is beyond safe Rust.
pub(crate) fn compile(source: &str) -> (TempDir, Command) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.c"), source).unwrap();
    let mut cc = Command::new("cc");
    assert!(cc.args(["-pthread", "-o", "a.out", "a.c"]).current_dir(dir.path()).status().unwrap().success());
    let program = Command::new(dir.path().join("a.out"));
    (dir, program)
}

pub(crate) fn state(tgid: Tgid) -> String {
    let stat = fs::read_to_string(format!("/proc/{tgid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').next().unwrap().to_owned()
}

pub(crate) fn wait_channel(tgid: Tgid) -> String {
    fs::read_to_string(format!("/proc/{tgid}/wchan")).unwrap()
}
