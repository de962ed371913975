//! What the probes are shown: real cgroups and processes that end with their value.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use reaper_userspace::event::{Event, Occurrence};
use reaper_userspace::ident::{CgroupId, CgroupRef, Hierarchy, ProcessKey, StartTicks, Tgid};
use reaper_userspace::probe::{Level, Probe, ProbeError, Rings};

/// Far more than the kernel needs; what takes longer does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The object that `cargo xtask build` made.
pub(crate) fn object() -> Vec<u8> {
    let default = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bpf/reaper-ebpf.o");
    let path = std::env::var_os("REAPER_BPF_OBJECT").map_or(default, PathBuf::from);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; type: cargo xtask build", path.display()))
}

/// Attached programs, and what they report.
pub(crate) struct Attached {
    probe: Probe,
    rings: Rings,
}

impl Attached {
    pub(crate) async fn next_batch(&mut self) -> Result<Vec<Event>, ProbeError> {
        self.rings.next_batch().await
    }
}

impl Deref for Attached {
    type Target = Probe;

    fn deref(&self) -> &Probe {
        &self.probe
    }
}

impl DerefMut for Attached {
    fn deref_mut(&mut self) -> &mut Probe {
        &mut self.probe
    }
}

/// A probe with that object.
pub(crate) fn attached() -> Attached {
    attached_at(Level::Btf)
}

/// A probe of this level; the thread has tracefs from then on.
pub(crate) fn attached_at(level: Level) -> Attached {
    if level == Level::Classic {
        mount_tracefs();
    }
    let loaded = Probe::load(&object(), level);
    let (probe, rings) = loaded.unwrap_or_else(|error| panic!("{:#}", anyhow::Error::new(error)));
    Attached { probe, rings }
}

/// In a mount namespace of this thread's own: not every machine has tracefs mounted.
fn mount_tracefs() {
    let nothing: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing).unwrap();
    mount(Some("tracefs"), "/sys/kernel/tracing", Some("tracefs"), MsFlags::empty(), nothing).unwrap();
}

/// All events up to the one that makes the condition true.
pub(crate) async fn until(probe: &mut Attached, done: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    let gather = async {
        while !done(&events) {
            events.extend(probe.next_batch().await.unwrap());
        }
    };
    let finished = tokio::time::timeout(PATIENCE, gather).await;
    finished.unwrap_or_else(|_late| panic!("the awaited event did not come, but {events:#?}"));
    events
}

/// A mounted hierarchy.
pub(crate) struct Hier {
    pub(crate) id: u32,
    mount: PathBuf,
}

impl Hier {
    pub(crate) fn v2() -> Self {
        Self { id: 0, mount: mounted(|kind, _| kind == "cgroup2").expect("cgroup v2 is mounted") }
    }

    /// Any v1 hierarchy; on a pure v2 system a named one without controllers, which stays mounted.
    pub(crate) fn v1() -> Self {
        let mount = mounted(|kind, _| kind == "cgroup").unwrap_or_else(|| {
            let place = std::env::temp_dir().join("reaper-test-v1");
            fs::create_dir_all(&place).unwrap();
            let options = ["-t", "cgroup", "-o", "none,name=reaper-test", "cgroup"];
            assert!(Command::new("mount").args(options).arg(&place).status().unwrap().success());
            place
        });
        let options = mounted_options(&mount);
        let id = fs::read_to_string("/proc/self/cgroup").unwrap().lines().find_map(|line| {
            let mut fields = line.split(':');
            let (id, controllers) = (fields.next()?, fields.next()?);
            let all = !controllers.is_empty()
                && controllers.split(',').all(|name| options.iter().any(|option| option == name));
            all.then(|| id.parse().unwrap())
        });
        Self { id: id.expect("the hierarchy of the mount"), mount }
    }

    pub(crate) const fn hierarchy(&self) -> Hierarchy {
        Hierarchy(self.id)
    }
}

fn mounts() -> Vec<Vec<String>> {
    let text = fs::read_to_string("/proc/mounts").unwrap();
    text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

fn mounted(wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts().into_iter().find(|fields| wanted(&fields[2], &fields[3])).map(|fields| fields[1].clone().into())
}

fn mounted_options(mount: &Path) -> Vec<String> {
    let of = mounts().into_iter().find(|fields| Path::new(&fields[1]) == mount).expect("mounted");
    of[3].split(',').map(str::to_owned).collect()
}

/// A cgroup of its own name, removed with its value.
pub(crate) struct Cgroup {
    path: PathBuf,
    cgroup: CgroupRef,
}

impl Cgroup {
    pub(crate) fn make(hierarchy: &Hier, name: &str) -> Self {
        let name = format!("reaper-test-probe-{}-{name}", std::process::id());
        Self::at(hierarchy.hierarchy(), hierarchy.mount.join(name))
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        Self::at(self.cgroup.hierarchy, self.path.join(name))
    }

    fn at(hierarchy: Hierarchy, path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        let id = CgroupId(fs::metadata(&path).unwrap().ino());
        Self { path, cgroup: CgroupRef { hierarchy, id } }
    }

    /// A child that another process has made; ours from then on.
    pub(crate) fn found(&self, name: &str) -> Self {
        let path = self.path.join(name);
        let id = CgroupId(fs::metadata(&path).unwrap().ino());
        Self { path, cgroup: CgroupRef { id, ..self.cgroup } }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn id(&self) -> CgroupRef {
        self.cgroup
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.path.join(file), text).unwrap();
    }

    pub(crate) fn add(&self, process: &Process) {
        self.write("cgroup.procs", &process.pid().to_string());
    }
}

impl Drop for Cgroup {
    /// Newer kernels move dead tasks out a moment after their parent heard of them: EBUSY passes.
    fn drop(&mut self) {
        for _ in 0..200 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

/// A child of the test. It ends when its input ends, which is with its value.
pub(crate) struct Process {
    child: Child,
    _directory: Option<tempfile::TempDir>,
}

impl Process {
    pub(crate) fn sleeper() -> Self {
        Self::spawn(&mut Command::new("cat"), None)
    }

    /// A shell that can be talked to. It has spoken: its own exec is over, which a return of spawn does not say.
    pub(crate) fn shell(script: &str) -> Self {
        let mut shell = Self::spawn(Command::new("sh").args(["-c", &format!("echo; {script}")]), None);
        shell.hear();
        shell
    }

    /// A shell whose comm is this name.
    pub(crate) fn named(name: &str, script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        symlink("/bin/sh", &path).unwrap();
        Self::spawn(Command::new(path).arg0("sh").args(["-c", script]), Some(directory))
    }

    /// A shell that reuses a free process number, in a later tick than its last owner. Others take numbers as
    /// well, hence the attempts.
    pub(crate) fn shell_with_pid(script: &str, pid: u32) -> Self {
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..2_000 {
            fs::write("/proc/sys/kernel/ns_last_pid", pid.saturating_sub(1).to_string()).unwrap();
            let shell = Self::shell(script);
            if shell.pid() == pid {
                return shell;
            }
        }
        panic!("number {pid} could not be had again")
    }

    /// A process without its first thread.
    pub(crate) fn leaderless() -> Self {
        let leaderless = Self::spawn(&mut Command::new(env!("CARGO_BIN_EXE_leaderless")), None);
        while stat(leaderless.pid())[0] != "Z" {
            std::thread::yield_now();
        }
        leaderless
    }

    pub(crate) fn spawn(command: &mut Command, directory: Option<tempfile::TempDir>) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self { child, _directory: directory }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn key(&self) -> ProcessKey {
        key_of(self.pid())
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if std::thread::panicking() {
            let _gone = self.child.kill();
        }
        let _status = self.child.wait();
    }
}

/// Whether a process of this number made another.
pub(crate) fn is_birth_by(event: &Event, pid: u32) -> bool {
    matches!(event.what, Occurrence::Unidentified { creator: Some(creator), .. } if creator.get() == pid)
}

/// The incarnation that `/proc` shows.
pub(crate) fn key_of(pid: u32) -> ProcessKey {
    let start = stat(pid)[19].parse().unwrap();
    ProcessKey { tgid: Tgid::new(pid.into()).unwrap(), start: StartTicks::from_ticks(start) }
}

/// Waits until the process has become this program.
pub(crate) fn wait_for_name(pid: u32, name: &str) {
    while fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() != name {
        std::thread::yield_now();
    }
}

/// Fields of `/proc/PID/stat` from the third on.
fn stat(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    fields.split_whitespace().map(str::to_owned).collect()
}
