//! A containerd of the test's own, with everything it starts removed again.
//!
//! Its root, state and address are in a temporary directory; runc's state and the shims' sockets are in
//! `/run/containerd` whatever the configuration says, so each instance has a namespace of its own.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use reaper_userspace::ident::{ContainerId, ContainerKey, Lookup, Namespace, ProcessKey, StartTicks, Tgid};
use reaper_userspace::runtime::{bundle, shim};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Containerd {
    dir: tempfile::TempDir,
    namespace: String,
    server: Child,
    ids: Mutex<Vec<String>>,
}

impl Containerd {
    pub(crate) fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::Builder::new().prefix("reaper-test-").tempdir().unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("reaper-test-runtime-{}-{count}", std::process::id());
        let at = dir.path().display();
        let config = format!(
            "version = 2\nroot = '{at}/root'\nstate = '{at}/state'\n\
             disabled_plugins = ['io.containerd.grpc.v1.cri']\n\
             [grpc]\naddress = '{at}/containerd.sock'\n[ttrpc]\naddress = '{at}/containerd.sock.ttrpc'\n"
        );
        fs::write(dir.path().join("config.toml"), config).unwrap();
        let bin = dir.path().join("rootfs/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
        let server = serve(dir.path());
        let started = Self { dir, namespace, server, ids: Mutex::default() };
        wait("containerd serves", || started.try_ctr(&["version"]).is_ok());
        started
    }

    pub(crate) fn address(&self) -> String {
        self.dir.path().join("containerd.sock").to_str().unwrap().to_owned()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn key(&self, id: &str) -> ContainerKey {
        ContainerKey {
            namespace: Namespace::try_from(self.namespace.as_str()).unwrap(),
            id: ContainerId::try_from(id).unwrap(),
        }
    }

    /// Runs a sleeping container, detached.
    pub(crate) fn run(&self, id: &str) {
        self.run_with(id, &[]);
    }

    pub(crate) fn run_with(&self, id: &str, options: &[&str]) {
        self.ids.lock().unwrap().push(id.to_owned());
        let rootfs = self.dir.path().join("rootfs");
        let mut words = vec!["run", "--detach", "--null-io"];
        words.extend(options);
        words.extend(["--rootfs", rootfs.to_str().unwrap(), id, "/bin/busybox", "sleep", "1000"]);
        self.ctr(&words);
    }

    pub(crate) fn ctr(&self, words: &[&str]) -> String {
        self.try_ctr(words).unwrap_or_else(|error| panic!("ctr {words:?}: {error}"))
    }

    fn try_ctr(&self, words: &[&str]) -> Result<String, String> {
        let address = self.address();
        let output = Command::new("ctr")
            .args(["--address", &address, "--namespace", &self.namespace, "--timeout", "20s"])
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// A program in the test's directory, to stand in for runc.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        Command::new("chmod").arg("755").arg(&path).status().unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_process(self.pid(), signal);
    }

    /// Starts the server again.
    pub(crate) fn serve(&mut self) {
        self.server = serve(self.dir.path());
        wait("containerd serves", || self.try_ctr(&["version"]).is_ok());
    }

    /// Ends the server with a signal.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.server.wait().unwrap();
    }

    /// The shim that was started for a container.
    pub(crate) fn shim(&self, id: &str) -> u32 {
        self.find_shim(id).expect("a shim")
    }

    fn find_shim(&self, id: &str) -> Option<u32> {
        let argv = format!("\0-namespace\0{}\0-id\0{id}\0-address\0{}\0", self.namespace, self.address());
        let is_shim = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text.ends_with(argv.as_bytes()))
        };
        let entries = fs::read_dir("/proc").ok()?.flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_shim)
    }

    /// Never panics: the test may be failing already.
    fn remove(&mut self) {
        signal_process(self.pid(), Signal::CONT);
        if self.server.try_wait().is_ok_and(|ended| ended.is_some()) {
            self.server = serve(self.dir.path());
        }
        within(|| self.try_ctr(&["version"]).is_ok());
        for id in self.ids.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _done_or_gone = self.try_ctr(&["task", "delete", "--force", id]);
            let _done_or_gone = self.try_ctr(&["container", "delete", id]);
            // A task without a record is out of ctr's reach; containerd removes what a dead shim leaves.
            if let (Lookup::Found(bundle), Some(shim)) =
                (bundle::one(&self.state(), &self.key(id)), self.find_shim(id))
            {
                bundle.init_pid.found().into_iter().for_each(|init| signal_process(init.get(), Signal::KILL));
                signal_process(shim, Signal::KILL);
            }
        }
        let runc = Path::new("/run/containerd/runc").join(&self.namespace);
        within(|| fs::read_dir(&runc).into_iter().flatten().next().is_none());
        self.signal(Signal::TERM);
        let _ended = self.server.wait();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_tree(&hierarchy.path().join(&self.namespace));
        }
        let _removed_or_gone = fs::remove_dir(runc);
        for id in self.ids.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // A shim that was killed leaves its socket.
            let key = self.key(id);
            let _removed_or_gone =
                fs::remove_file(shim::socket_path(&self.address(), &key.namespace, &key.id));
        }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.remove();
    }
}

fn serve(dir: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Command::new("containerd")
        .arg("--config")
        .arg(dir.join("config.toml"))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn remove_tree(cgroup: &Path) {
    let children = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for child in children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&child.path());
    }
    let _removed_or_gone = fs::remove_dir(cgroup);
}

pub(crate) fn wait(what: &str, done: impl FnMut() -> bool) {
    assert!(within(done), "{what}: not within {PATIENCE:?}");
}

fn within(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        match done() {
            true => return true,
            false if start.elapsed() > PATIENCE => return false,
            false => sleep(Duration::from_millis(20)),
        }
    }
}

pub(crate) fn signal_process(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // The number may be gone already when a test has ended the process itself.
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let _sent_or_gone = pidfd_send_signal(process, signal);
    }
}

/// SIGSTOP, and waits until every thread has stopped: the signal alone takes effect later.
pub(crate) fn stop_process(pid: u32) {
    signal_process(pid, Signal::STOP);
    wait("every thread stops", || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        threads.into_iter().all(|thread| {
            fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
        })
    });
}

/// Start time of a process, from field 22 of its `stat`.
pub(crate) fn start_of(tgid: Tgid) -> Lookup<StartTicks> {
    stat(tgid.get()).map_or(Lookup::NotFound, |(_, start)| Lookup::Found(StartTicks::from_ticks(start)))
}

/// Whether exactly this incarnation is alive and no zombie.
pub(crate) fn alive(process: ProcessKey) -> Lookup<bool> {
    Lookup::Found(
        stat(process.tgid.get()).is_some_and(|(state, start)| state != "Z" && start == process.start.get()),
    )
}

fn stat(pid: u32) -> Option<(String, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(((*fields.first()?).to_owned(), fields.get(19)?.parse().ok()?))
}
