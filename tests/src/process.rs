//! Processes by incarnation, and signals that cannot hit a reused number.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process number and the start time that tells its incarnations apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// The number, in the PID namespace of the caller.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks since boot.
    pub start_ticks: u64,
}

// === impl Incarnation ===

impl Incarnation {
    /// The process that has this number now; `None` if there is none, or only a dead one.
    pub fn of(pid: u32) -> Result<Option<Self>> {
        Ok(stat(pid)?.filter(|(state, _)| !is_dead(*state)).map(|(_, start_ticks)| Self { pid, start_ticks }))
    }

    /// True while exactly this process runs; a zombie (state Z) does not.
    pub fn is_alive(&self) -> Result<bool> {
        Ok(Self::of(self.pid)? == Some(*self))
    }

    /// SIGKILL; a process that is gone is no error.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Sends a signal to this incarnation and no other.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let number = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("not a process number")?;
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("pidfd_open {}", self.pid)),
        };
        // The number was looked up again after the pidfd was opened: the pidfd is this incarnation or a dead one.
        if !self.is_alive()? {
            return Ok(());
        }
        match pidfd_send_signal(&pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("signal {}", self.pid)),
        }
    }

    /// The `comm` of the process; empty once it is gone.
    pub fn comm(&self) -> String {
        fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default().trim_end().to_owned()
    }
}

/// Live processes, other than the caller, whose argument vector mentions every one of the texts.
pub fn processes_naming(texts: &[&str]) -> Result<BTreeSet<Incarnation>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").context("read /proc")? {
        let name = entry.context("entry of /proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        // A process that ends while it is read names nothing.
        let argv = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let argv = String::from_utf8_lossy(&argv).replace('\0', " ");
        if texts.iter().all(|text| argv.contains(text)) {
            found.extend(Incarnation::of(pid)?);
        }
    }
    Ok(found)
}

/// The numbers listed in a `cgroup.procs`, as incarnations; a cgroup that is gone lists none.
pub(crate) fn members(cgroup: &Path) -> Result<BTreeSet<Incarnation>> {
    let path = cgroup.join("cgroup.procs");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if is_gone(&error) => return Ok(BTreeSet::new()),
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    let mut found = BTreeSet::new();
    for pid in text.lines().filter_map(|line| line.parse().ok()) {
        found.extend(Incarnation::of(pid)?);
    }
    Ok(found)
}

/// ENOENT, or the ENODEV that files of a removed cgroup give.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::NODEV)
}

const fn is_dead(state: char) -> bool {
    matches!(state, 'Z' | 'X' | 'x')
}

/// State and start time; `None` if no process has the number.
fn stat(pid: u32) -> Result<Option<(char, u64)>> {
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(error) if is_gone(&error) || Errno::from_io_error(&error) == Some(Errno::SRCH) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("read /proc/{pid}/stat")),
    };
    // The name in parentheses may itself hold parentheses and blanks.
    let (_, fields) = text.rsplit_once(')').context("stat without a name")?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next().and_then(|field| field.chars().next()).context("stat without a state")?;
    let start = fields.nth(18).and_then(|field| field.parse().ok()).context("stat without a start time")?;
    Ok(Some((state, start)))
}
