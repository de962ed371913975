//! Boots a node on a throwaway copy of its disk, and follows its job line by line.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::disk::{self, last_lines};
use super::job::{BEGIN, END, Job};
use super::node::Node;
use super::qemu;
use super::store::Store;
use crate::setup::say;

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From power on until the job begins.
    pub(super) boot: Duration,
    /// Until the job has ended.
    pub(super) work: Duration,
}

/// A machine that runs; ended when dropped. Its disk was never written to.
struct Machine {
    child: Child,
    lines: Receiver<String>,
    console: PathBuf,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { boot: Duration::from_mins(10), work: Duration::from_mins(15) }
    }
}

/// Runs a job to its end, hands each line of its output over and returns its exit code.
pub(super) fn run(
    store: &Store,
    node: &Node,
    job: &Job,
    limits: Limits,
    mut show: impl FnMut(&str),
) -> anyhow::Result<i32> {
    let _lock = store.lock()?;
    let dir = store.make_anew(&format!("run-{}", node.name))?;
    let archive = job.pack(&dir)?;
    let machine = Machine::boot(store, node, &archive, dir.join("console.log"))?;
    while machine.line(node, "boot", limits.boot)? != BEGIN {}
    let deadline = deadline_in(limits.work);
    loop {
        let line = machine.line(node, "end of the job", left_until(deadline))?;
        match line.strip_prefix(END) {
            Some(code) => return code.trim().parse().with_context(|| format!("exit code {code:?}")),
            None => show(&line),
        }
    }
}

/// Gives the terminal to a shell in the node.
pub(super) fn shell(store: &Store, node: &Node, job: &Job) -> anyhow::Result<ExitCode> {
    let _lock = store.lock()?;
    let dir = store.make_anew(&format!("run-{}", node.name))?;
    let archive = job.pack(&dir)?;
    let status = command(store, node, &archive).args(["-serial", "mon:stdio"]).status()?;
    if !status.success() {
        bail!("the emulator of {} ended: {status}", node.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// `-cx16`: the 6.12 kernels of Debian's backports crash in qemu 7.2's emulation of cmpxchg16b.
fn command(store: &Store, node: &Node, archive: &Path) -> Command {
    let files = disk::files(store, node.disk());
    let drive = |file: &Path, options: &str| {
        format!("file={},if=virtio,format=raw,{options}", qemu::inside(store, file))
    };
    let mut command = qemu::command(store);
    command
        .args([
            "-machine",
            "q35",
            "-cpu",
            "max,-cx16",
            "-smp",
            "2",
            "-m",
            "2048",
            "-nic",
            "none",
            "-no-reboot",
        ])
        .args(["-display", "none"])
        .args([
            "-kernel",
            &qemu::inside(store, &files.kernel),
            "-initrd",
            &qemu::inside(store, &files.initrd),
        ])
        .args(["-append", &node.command_line()])
        .args(["-drive", &drive(&files.image, "snapshot=on,cache=unsafe")])
        .args(["-drive", &drive(archive, "readonly=on")]);
    command
}

// === impl Machine ===

impl Machine {
    fn boot(store: &Store, node: &Node, archive: &Path, console: PathBuf) -> anyhow::Result<Self> {
        say(&format!("booting {}", node.name));
        let log = format!("file:{}", qemu::inside(store, &console));
        let mut child = command(store, node, archive)
            .args(["-serial", &log, "-serial", "stdio", "-monitor", "none"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the emulator")?;
        let port = child.stdout.take().context("no second serial port")?;
        Ok(Self { child, lines: read_lines(port), console })
    }

    /// The next line of the second serial port.
    fn line(&self, node: &Node, what: &str, limit: Duration) -> anyhow::Result<String> {
        let why = match self.lines.recv_timeout(limit) {
            Ok(line) => return Ok(line),
            Err(RecvTimeoutError::Timeout) => format!("no {what} within {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => format!("the machine ended before the {what}"),
        };
        bail!("{}: {why}; the end of its console:\n{}", node.name, last_lines(&self.console, 25));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
            say(&format!("cannot end the emulator {}: {error}", self.child.id()));
        }
    }
}

/// Lines as they come, from a thread of their own, so that waiting for one can end.
fn read_lines(port: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(port).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

#[expect(clippy::disallowed_methods, reason = "a limit for a machine that hangs")]
fn deadline_in(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now)
}

#[expect(clippy::disallowed_methods, reason = "a limit for a machine that hangs")]
fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
