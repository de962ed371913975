//! A private containerd: own root, state, address and namespace, in the mount namespace of a [`Node`].
//!
//! # Kernel and containerd facts
//! - runc's state and the sockets of shims stay in `/run/containerd` whatever the configuration says; they carry
//!   the namespace, or the hash of address, namespace and id (`pkg/shim/util_unix.go:SocketAddress`).
//! - CRI is disabled: it would look for a network configuration of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::command::{Finished, run};
use crate::image::{self, IMAGE};
use crate::node::{Node, unmount_below};
use crate::process::{Incarnation, processes_naming};
use crate::runc::Faults;
use crate::traces::Traces;
use crate::wait::{wait_for, wait_until};

const CALL: Duration = Duration::from_mins(1);
const START: Duration = Duration::from_mins(3);
const STOP: Duration = Duration::from_secs(20);

/// Where a container's root filesystem comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rootfs {
    /// A snapshot of the image: an overlay mounted in the bundle.
    Image,
    /// A directory: nothing is mounted in the bundle.
    Directory,
}

/// What `ctr task list` says of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// The process number of the init.
    pub pid: u32,
    /// `RUNNING`, `PAUSED`, `STOPPED`, `CREATED`, `UNKNOWN`.
    pub status: String,
}

/// A containerd of its own; what it made is gone when dropped.
#[derive(Debug)]
pub struct Containerd {
    node: Node,
    server: Mutex<Option<Child>>,
    ids: Mutex<BTreeSet<String>>,
    rootfs: PathBuf,
    first_start: Duration,
}

// === impl Containerd ===

impl Containerd {
    /// Starts a containerd on the node and imports the image.
    pub fn start(node: Node) -> Result<Self> {
        let rootfs = image::rootfs(node.dir())?;
        let archive = image::archive(node.dir(), &rootfs)?;
        fs::write(node.dir().join("config.toml"), config(node.dir())).context("write config.toml")?;
        let mut started = Self {
            node,
            server: Mutex::new(None),
            ids: Mutex::new(BTreeSet::new()),
            rootfs,
            first_start: Duration::ZERO,
        };
        started.first_start = started.serve()?;
        let archive = archive.to_str().context("directory name is not UTF-8")?;
        started.ctr(&["images", "import", archive])?.expect_success("import the image")?;
        Ok(started)
    }

    /// Name and version, as in `containerd 1.6.20`.
    pub fn version(&self) -> Result<String> {
        let said = run(self.node.command("containerd").arg("--version"), CALL)?;
        let said = said.expect_success("containerd --version")?;
        Ok(format!("containerd {}", said.split_whitespace().nth(2).unwrap_or("of unknown version")))
    }

    /// The node it runs on.
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Keeps the node's directory (logs, records) after the drop.
    pub fn keep(&mut self) {
        self.node.keep();
    }

    /// Its gRPC address.
    pub fn address(&self) -> PathBuf {
        self.node.dir().join("containerd.sock")
    }

    /// The namespace of all its containers.
    pub fn namespace(&self) -> &str {
        self.node.name()
    }

    /// How long the very first start took, with nothing to load.
    pub const fn first_start(&self) -> Duration {
        self.first_start
    }

    /// Starts the server and returns how long it took until it served.
    pub fn serve(&self) -> Result<Duration> {
        let log = fs::File::options().create(true).append(true).open(self.node.dir().join("containerd.log"));
        let log = log.context("open containerd.log")?;
        let started = Instant::now();
        let mut command = self.node.command("containerd");
        command.arg("--config").arg(self.node.dir().join("config.toml"));
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("containerd.log")?)
            .stderr(log)
            .spawn()
            .context("start containerd")?;
        *self.server() = Some(child);
        wait_until("containerd serves", START, || {
            ensure!(self.is_running()?, "containerd ended: {}", self.last_words());
            Ok(UnixStream::connect(self.address()).is_ok())
        })?;
        self.ctr(&["version"])?.expect_success("ctr version")?;
        Ok(started.elapsed())
    }

    /// SIGTERM, then waits for the end. Shims and containers live on.
    pub fn stop(&self) -> Result<()> {
        self.end(Signal::TERM)
    }

    /// SIGKILL, then waits for the end. Shims and containers live on.
    pub fn kill(&self) -> Result<()> {
        self.end(Signal::KILL)
    }

    /// SIGSTOP: the socket still takes connections, but nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Stops and starts it; returns how long the start took.
    pub fn restart(&self) -> Result<Duration> {
        self.stop()?;
        self.serve()
    }

    /// Runs `ctr` on this containerd and namespace.
    pub fn ctr(&self, args: &[&str]) -> Result<Finished> {
        run(self.ctr_command().args(args), CALL)
    }

    pub(crate) fn ctr_command(&self) -> std::process::Command {
        let mut command = self.node.command("ctr");
        command.arg("--address").arg(self.address()).args(["--namespace", self.namespace()]);
        command
    }

    /// All tasks, by container id.
    pub fn tasks(&self) -> Result<BTreeMap<String, TaskState>> {
        let list = self.ctr(&["task", "list"])?.expect_success("list tasks")?;
        let parse = |line: &str| {
            let mut words = line.split_whitespace();
            let (id, pid, status) = (words.next()?, words.next()?, words.next()?);
            Some((id.to_owned(), TaskState { pid: pid.parse().ok()?, status: status.to_owned() }))
        };
        Ok(list.lines().skip(1).filter_map(parse).collect())
    }

    /// The id of a container of this node.
    pub fn id(&self, label: &str) -> String {
        let id = format!("{}-{label}", self.namespace());
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        id
    }

    /// The path of a container's cgroup from the root of each hierarchy.
    pub fn cgroup(&self, id: &str) -> String {
        format!("/{}/{id}", self.namespace())
    }

    /// The bundle of a container.
    pub fn bundle(&self, id: &str) -> PathBuf {
        self.node.state().join("io.containerd.runtime.v2.task").join(self.namespace()).join(id)
    }

    /// The directory in which runc keeps what it knows of a container.
    pub fn runc_state(&self, id: &str) -> PathBuf {
        Path::new("/run/containerd/runc").join(self.namespace()).join(id)
    }

    /// What would be left if the removal failed; to be asked after the drop.
    pub fn traces(&self) -> Traces {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sockets = ids.iter().map(|id| {
            let name = format!("{}/{}/{id}", self.address().display(), self.namespace());
            Path::new("/run/containerd/s").join(image::sha256(name.as_bytes()))
        });
        let runc = Path::new("/run/containerd/runc").join(self.namespace());
        let files = sockets.chain([runc]).collect();
        Traces::new(self.namespace().to_owned(), self.node.dir().to_owned(), files)
    }

    /// `ctr run --detach`.
    pub(crate) fn run(&self, id: &str, rootfs: Rootfs, faults: &Faults, args: &[&str]) -> Result<Finished> {
        run(&mut self.run_command(id, rootfs, faults, args)?, CALL)
    }

    pub(crate) fn run_command(
        &self,
        id: &str,
        rootfs: Rootfs,
        faults: &Faults,
        args: &[&str],
    ) -> Result<std::process::Command> {
        let runc = faults.install(&self.node.dir().join("bin"), id)?;
        let mut command = self.ctr_command();
        // No CPU weight: the v2 view of a hybrid machine has no controllers. No fifos outside of the node.
        command.args(["run", "--detach", "--null-io", "--cpu-shares", "0", "--runc-binary"]).arg(runc);
        match rootfs {
            Rootfs::Image => command.arg(IMAGE),
            Rootfs::Directory => command.arg("--rootfs").arg(&self.rootfs),
        };
        command.arg(id).args(args);
        Ok(command)
    }

    /// Runtime processes (shim, runc, ctr) that work for a container.
    pub(crate) fn runtime_processes(&self, id: &str) -> Result<BTreeSet<Incarnation>> {
        let dir = self.node.dir().to_string_lossy().into_owned();
        processes_naming(&[&dir, &format!(" {id} ")])
    }

    /// The shim that was started for a container.
    pub(crate) fn shim(&self, id: &str) -> Result<Incarnation> {
        let dir = self.node.dir().to_string_lossy().into_owned();
        wait_for(&format!("the shim of {id}"), STOP, || {
            Ok(processes_naming(&[&dir, &format!(" -id {id} -address ")])?.first().copied())
        })
    }

    fn server(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // Not waited for yet, so the number is still this child's.
        let pid = self.server().as_ref().map(Child::id).context("containerd is not running")?;
        Incarnation::of(pid)?.map_or(Ok(()), |server| server.signal(signal))
    }

    fn end(&self, signal: Signal) -> Result<()> {
        self.signal(signal)?;
        let mut server = self.server();
        if let Some(child) = server.as_mut() {
            wait_for("the end of containerd", STOP, || child.try_wait().context("wait"))?;
        }
        *server = None;
        Ok(())
    }

    pub(crate) fn is_running(&self) -> Result<bool> {
        match self.server().as_mut() {
            Some(child) => Ok(child.try_wait().context("wait for containerd")?.is_none()),
            None => Ok(false),
        }
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.node.dir().join("containerd.log")).unwrap_or_default();
        log.lines().next_back().unwrap_or("no log").to_owned()
    }

    fn undo(&self) -> Result<()> {
        if self.server().is_some() {
            self.kill()?;
        }
        let dir = self.node.dir().to_string_lossy().into_owned();
        wait_until("the end of all runtime processes", STOP, || {
            let left = processes_naming(&[&dir])?;
            left.iter().try_for_each(Incarnation::kill)?;
            Ok(left.is_empty())
        })?;
        self.node.cgroups().remove(self.namespace())?;
        unmount_below(&self.node.state())?;
        self.traces().remove_files()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            crate::report(&format!("remains of {}: {error:#}", self.namespace()));
        }
    }
}

fn config(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
temp = "{dir}/tmp"
disabled_plugins = ["io.containerd.grpc.v1.cri"]

[grpc]
address = "{dir}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "{dir}/opt"
"#
    )
}
