//! The product as a program: one-shot commands and the daemon.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::command::{Finished, run};
use crate::containerd::Containerd;
use crate::process::Incarnation;
use crate::wait::{wait_for, wait_until};

const READY: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(20);
const HTTP: Duration = Duration::from_secs(5);

/// Runs a program in a mount namespace with tracefs, which not every machine has mounted, and all that is mounted later.
const WITH_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing && exec \"$0\" \"$@\"";

/// The binary and the flags that point it at one containerd.
#[derive(Clone, Debug)]
pub struct Reaper {
    binary: PathBuf,
    tracefs: bool,
    flags: Vec<String>,
    dir: PathBuf,
    audit_log: PathBuf,
}

/// What the daemon may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Verdicts and plans only.
    Observe,
    /// Reap what is confirmed.
    Enforce,
}

/// How a daemon is run.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// What it may do.
    pub mode: Mode,
    /// Age before anything is confirmed.
    pub grace: Duration,
    /// Time between two full looks.
    pub interval: Duration,
}

/// A running daemon, killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    metrics: SocketAddr,
    log: PathBuf,
}

// === impl Mode ===

impl Mode {
    /// The word for `--mode`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

// === impl Reaper ===

impl Reaper {
    /// The product at this path, for one containerd.
    pub fn new(binary: PathBuf, containerd: &Containerd) -> Self {
        let node = containerd.node();
        let flags = [
            ("--containerd-address", containerd.address()),
            ("--containerd-state", node.state()),
            ("--runc-root", PathBuf::from("/run/containerd/runc")),
            ("--cgroup-root", node.cgroup_root().to_owned()),
            ("--state-dir", node.dir().join("reaper")),
        ];
        let flags =
            flags.iter().flat_map(|(flag, path)| [(*flag).to_owned(), path.display().to_string()]).collect();
        let audit_log = node.dir().join("audit.jsonl");
        Self { binary, tracefs: false, flags, dir: node.dir().to_owned(), audit_log }
    }

    /// The same where tracefs is mounted, as it is on nodes.
    #[must_use]
    pub fn with_tracefs(self) -> Self {
        Self { tracefs: true, ..self }
    }

    fn program(&self) -> Command {
        if !self.tracefs {
            return Command::new(&self.binary);
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "sh", "-c", WITH_TRACEFS]).arg(&self.binary);
        command
    }

    /// The product that `REAPER_BINARY` names, for one containerd.
    pub fn from_env(containerd: &Containerd) -> Result<Self> {
        let binary = std::env::var_os("REAPER_BINARY").context(
            "REAPER_BINARY names no product to test; `cargo xtask test` builds it and sets the variable, or type: \
             cargo build -p reaper-userspace && \
             REAPER_BINARY=$PWD/target/debug/cgroup-reaper cargo test -p reaper-tests --test 'e2e_*'",
        )?;
        Ok(Self::new(PathBuf::from(binary), containerd))
    }

    /// The same with its audit log somewhere else.
    #[must_use]
    pub fn recording_in(self, audit_log: PathBuf) -> Self {
        Self { audit_log, ..self }
    }

    /// Where its audit log goes.
    pub fn audit_log(&self) -> PathBuf {
        self.audit_log.clone()
    }

    /// Its state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("reaper")
    }

    /// `pause` or `resume`, which know of no containerd.
    pub fn brake(&self, words: &[&str]) -> Result<Finished> {
        run(Command::new(&self.binary).args(words).arg("--state-dir").arg(self.state_dir()), STOP)
    }

    /// A command with the flags of this containerd added, to be started by the caller.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program();
        command.args(args).args(&self.flags);
        command
    }

    /// Runs a command with the flags of this containerd added.
    pub fn run(&self, args: &[&str], limit: Duration) -> Result<Finished> {
        run(&mut self.command(args), limit)
    }

    /// Runs a command and parses what it prints; whatever the exit code.
    pub fn json(&self, args: &[&str], limit: Duration) -> Result<(Option<i32>, serde_json::Value)> {
        let finished = self.run(args, limit)?;
        let value = serde_json::from_str(&finished.stdout)
            .with_context(|| format!("{args:?} exited {:?}: {}", finished.code, finished.stderr.trim()))?;
        Ok((finished.code, value))
    }

    /// Starts `run` and waits until it says it is ready.
    pub fn daemon(&self, options: &DaemonOptions) -> Result<Daemon> {
        self.daemon_with(options, &[])
    }

    /// The same with more flags.
    pub fn daemon_with(&self, options: &DaemonOptions, extra: &[&str]) -> Result<Daemon> {
        self.daemon_until("/readyz", options, extra)
    }

    /// The same for one that will never be ready: waits until it answers this path with 200.
    pub fn daemon_until(&self, path: &str, options: &DaemonOptions, extra: &[&str]) -> Result<Daemon> {
        let mode = options.mode.as_str();
        let metrics = free_address()?;
        let log = self.dir.join(format!("reaper-{mode}.log"));
        let output = fs::File::options().create(true).append(true).open(&log).context("open the log")?;
        let mut command = self.program();
        command.args(["run", "--mode", mode, "--grace", &spell(options.grace)]);
        command.args(["--interval", &spell(options.interval), "--metrics-listen", &metrics.to_string()]);
        let child = command
            .arg("--audit-log")
            .arg(&self.audit_log)
            .args(extra)
            .args(&self.flags)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("the log")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", self.binary.display()))?;
        let mut daemon = Daemon { child, metrics, log };
        wait_until("a ready daemon", READY, || {
            let ended = daemon.child.try_wait().context("wait")?;
            ensure!(ended.is_none(), "the daemon ended by itself ({ended:?}): {}", daemon.last_words());
            Ok(daemon.get(path).is_ok_and(|(status, _)| status == 200))
        })
        .with_context(|| format!("daemon in mode {mode}: {}", daemon.last_words()))?;
        Ok(daemon)
    }
}

// === impl Daemon ===

impl Daemon {
    /// Asks its HTTP server; returns status and body.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.metrics, HTTP).context("connect")?;
        stream.set_read_timeout(Some(HTTP)).context("set the time limit")?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .context("ask")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("read the answer")?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("no HTTP status")?;
        Ok((status, body.to_owned()))
    }

    /// The process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM; returns the exit code.
    pub fn stop(mut self) -> Result<Option<i32>> {
        if let Some(process) = Incarnation::of(self.child.id())? {
            process.signal(Signal::TERM)?;
        }
        let status = wait_for("the end of the daemon", STOP, || self.child.try_wait().context("wait"))?;
        Ok(status.code())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let mut lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.reverse();
        lines.join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
            crate::report(&format!("daemon {}: {error}", self.child.id()));
        }
    }
}

/// The records of an audit log; a last line that is still being written is left out.
pub fn read_audit(path: &Path) -> Result<Vec<serde_json::Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("audit record {line}"));
    whole.lines().map(parse).collect()
}

/// A duration as the flags take it.
fn spell(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    listener.local_addr().context("find a free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_still_being_written_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        fs::write(&log, "{\"seq\":1}\n{\"seq\":2}\n{\"se").unwrap();
        assert_eq!(read_audit(&log).unwrap().len(), 2);
        fs::write(&log, "{\"seq\":1}\n{\"se\n{\"seq\":3}\n").unwrap();
        assert!(read_audit(&log).is_err(), "a broken record in the middle is none that is being written");
    }

    #[test]
    fn durations_are_spelled_for_flags() {
        assert_eq!(spell(Duration::from_secs(1)), "1s");
        assert_eq!(spell(Duration::from_millis(1500)), "1500ms");
    }
}
