//! Processes that cost one fork each and do nothing, or fork when told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// Children of one forker.
const BROOD: usize = 6;
/// Kept ready, so that each has lived for some clock ticks when its turn comes.
const SPARE: usize = 48;

/// Whether a process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Part of a leak.
    Leaked,
    /// Nobody's business.
    Bystander,
}

/// All processes of a worker.
#[derive(Debug)]
pub(crate) struct Processes {
    known: BTreeMap<i32, Fate>,
    /// Signalled, and not dead yet: v1 keeps what it froze from dying.
    doomed: BTreeSet<i32>,
    spare: VecDeque<i32>,
    starter: OwnedFd,
    trigger: OwnedFd,
    /// Bystanders that died.
    pub(crate) harmed: Vec<i32>,
}

// === impl Processes ===

impl Processes {
    pub(crate) fn new() -> Result<Self> {
        let (trigger, starter) = nix::unistd::pipe()?;
        let mut processes = Self {
            known: BTreeMap::new(),
            doomed: BTreeSet::new(),
            spare: VecDeque::new(),
            starter,
            trigger,
            harmed: vec![],
        };
        processes.refill()?;
        Ok(processes)
    }

    pub(crate) fn refill(&mut self) -> Result<()> {
        while self.spare.len() < SPARE {
            let pid = start(None)?;
            self.known.insert(pid, Fate::Bystander);
            self.spare.push_back(pid);
        }
        Ok(())
    }

    /// An old process for a new purpose.
    pub(crate) fn take(&mut self, fate: Fate) -> Result<i32> {
        let pid = self.spare.pop_front().context("no spare process")?;
        self.known.insert(pid, fate);
        Ok(pid)
    }

    /// Comes back, alive.
    pub(crate) fn give_back(&mut self, pid: i32) {
        self.spare.push_back(pid);
    }

    /// A process that forks once [`Self::release`] is called.
    pub(crate) fn forker(&mut self) -> Result<i32> {
        let pid = start(Some(self.trigger.as_raw_fd()))?;
        self.known.insert(pid, Fate::Leaked);
        Ok(pid)
    }

    pub(crate) fn release(&self) -> Result<()> {
        nix::unistd::write(&self.starter, b"x").map(drop).context("release a forker")
    }

    /// A bystander with the number of a process that was reaped.
    pub(crate) fn with_number(&mut self, pid: i32) -> Result<Option<i32>> {
        for _ in 0..3 {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())?;
            let new = start(None)?;
            self.known.insert(new, Fate::Bystander);
            if new == pid {
                return Ok(Some(new));
            }
            self.spare.push_back(new);
        }
        Ok(None)
    }

    /// SIGKILL to one of the leaked, by somebody else; true once it is reaped.
    pub(crate) fn end(&mut self, pid: i32) -> bool {
        assert_ne!(self.known.get(&pid), Some(&Fate::Bystander), "{pid} is to live");
        self.doomed.insert(pid);
        kill(pid);
        for _ in 0..200 {
            if !self.collect_one(pid) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Whether it was neither reaped nor is dead.
    fn collect_one(&mut self, pid: i32) -> bool {
        let alive = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive);
        if !alive {
            self.doomed.remove(&pid);
            self.known.remove(&pid);
        }
        alive
    }

    /// Reaps what is dead, and notes which of it should not be.
    pub(crate) fn collect(&mut self) {
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let Some(pid) = status.pid().map(Pid::as_raw) else { return };
            self.doomed.remove(&pid);
            if self.known.remove(&pid) == Some(Fate::Bystander) {
                self.harmed.push(pid);
                self.spare.retain(|spare| *spare != pid);
            }
        }
    }

    pub(crate) fn is_alive(&mut self, pid: i32) -> bool {
        self.collect();
        self.known.contains_key(&pid)
    }

    /// Ends every process that is part of a leak, grandchildren included.
    pub(crate) fn end_leaked(&mut self, listed: &[i32]) {
        let leaked = self.known.iter().filter(|(_, fate)| **fate == Fate::Leaked).map(|(pid, _)| *pid);
        for pid in leaked.chain(listed.iter().copied()).collect::<Vec<_>>() {
            if self.known.get(&pid) != Some(&Fate::Bystander) {
                kill(pid);
            }
        }
        self.collect();
    }

    pub(crate) fn leaked_left(&mut self) -> bool {
        self.collect();
        self.known.values().any(|fate| *fate == Fate::Leaked)
    }

    /// Whether nobody but the product would end it.
    pub(crate) fn is_unharmed(&mut self, pid: i32) -> bool {
        self.is_alive(pid) && !self.doomed.contains(&pid)
    }
}

fn kill(pid: i32) {
    // It may have died, and is not reaped: the number is its own.
    let _dead = nix::sys::signal::kill(Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

/// Forks a process that waits, or one that forks as soon as it can read a byte.
fn start(trigger: Option<RawFd>) -> Result<i32> {
    #[expect(unsafe_code, reason = "one fork a process is what makes a million rounds possible")]
    // SAFETY: the child calls only async-signal-safe functions and never returns.
    let forked = unsafe { fork() }.context("fork")?;
    match forked {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            if let Some(trigger) = trigger {
                brood(trigger);
            }
            loop {
                nix::unistd::pause();
            }
        }
    }
}

/// Async-signal-safe: forks children that wait, once told to.
fn brood(trigger: RawFd) {
    let mut byte = [0_u8];
    loop {
        #[expect(unsafe_code, reason = "a read that needs no owned descriptor")]
        // SAFETY: the buffer is one byte long and lives across the call.
        let read = unsafe { libc::read(trigger, byte.as_mut_ptr().cast(), 1) };
        if read == 1 {
            break;
        }
        if read == 0 || Errno::last() != Errno::EINTR {
            return;
        }
    }
    for _ in 0..BROOD {
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: the child waits for ever.
        if let Ok(ForkResult::Child) = unsafe { fork() } {
            loop {
                nix::unistd::pause();
            }
        }
    }
}
