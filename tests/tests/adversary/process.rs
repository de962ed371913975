//! Processes that cost one fork each and do nothing, or fork when told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// Children of one forker.
const BROOD: usize = 6;
/// Kept ready, so that each has lived for some clock ticks when its turn comes.
const SPARE: usize = 48;

/// Processes that share a stack: a waiting one writes nothing to it.
const STACK_COUNT: usize = 1024;
/// Moments.
const PATIENCE: u32 = 4000;

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
    loser: OwnedFd,
    lose: OwnedFd,
    /// Bystanders that died.
    pub(crate) harmed: Vec<i32>,
}

// === impl Processes ===

impl Processes {
    pub(crate) fn new() -> Result<Self> {
        let (trigger, starter) = nix::unistd::pipe()?;
        let (lose, loser) = nix::unistd::pipe()?;
        let mut processes = Self {
            known: BTreeMap::new(),
            doomed: BTreeSet::new(),
            spare: VecDeque::new(),
            starter,
            trigger,
            loser,
            lose,
            harmed: vec![],
        };
        processes.refill()?;
        Ok(processes)
    }

    pub(crate) fn refill(&mut self) -> Result<()> {
        while self.spare.len() < SPARE {
            let pid = waiter()?;
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
        let pid = start(self.trigger.as_raw_fd(), brood)?;
        self.known.insert(pid, Fate::Leaked);
        Ok(pid)
    }

    /// A process that loses its main thread once [`Self::behead`] is called; moved afterwards, it would leave it behind.
    pub(crate) fn leader(&mut self) -> Result<i32> {
        let pid = start(self.lose.as_raw_fd(), lose_the_leader)?;
        self.known.insert(pid, Fate::Leaked);
        Ok(pid)
    }

    /// Returns when the main thread is gone.
    pub(crate) fn behead(&self, pid: i32) -> Result<()> {
        nix::unistd::write(&self.loser, b"x").context("release a leader")?;
        for _ in 0..PATIENCE {
            if fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z ")) {
                return Ok(());
            }
            moment();
        }
        bail!("the main thread of {pid} stays")
    }

    pub(crate) fn release(&self) -> Result<()> {
        nix::unistd::write(&self.starter, b"x").map(drop).context("release a forker")
    }

    /// A bystander with the number of a process that was reaped.
    pub(crate) fn with_number(&mut self, pid: i32) -> Result<Option<i32>> {
        for _ in 0..3 {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())?;
            let new = waiter()?;
            self.known.insert(new, Fate::Bystander);
            if new == pid {
                return Ok(Some(new));
            }
            self.spare.push_back(new);
        }
        Ok(None)
    }

    /// SIGKILL to one of the leaked, by somebody else; true once it is reaped. What v1 keeps `frozen` does not die.
    pub(crate) fn end(&mut self, pid: i32, frozen: bool) -> bool {
        assert_ne!(self.known.get(&pid), Some(&Fate::Bystander), "{pid} is to live");
        self.doomed.insert(pid);
        kill(pid);
        for _ in 0..PATIENCE {
            if !self.collect_one(pid) {
                return true;
            }
            if frozen {
                return false;
            }
            moment();
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

/// Lets others run; shorter than the shortest wait of the product.
pub(crate) fn moment() {
    std::thread::sleep(Duration::from_micros(50));
}

/// A process that waits and shares our memory: without the copy it costs a fifth of a fork.
fn waiter() -> Result<i32> {
    extern "C" fn wait(_nothing: *mut libc::c_void) -> libc::c_int {
        loop {
            rest();
        }
    }
    static STACKS: [[AtomicU64; 256]; STACK_COUNT] =
        [const { [const { AtomicU64::new(0) }; 256] }; STACK_COUNT];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let stack = &STACKS[NEXT.fetch_add(1, Ordering::Relaxed) % STACK_COUNT];
    let top = stack.as_ptr_range().end.cast_mut().cast();
    #[expect(unsafe_code, reason = "a cheap process is what makes a million rounds possible")]
    // SAFETY: the function makes system calls and never returns. Its stack is a static of atomics that comes round again
    // when far more processes were made than live at a time. It sets `errno`, which it shares, only when a handled signal
    // interrupts it, and there is none.
    let pid = unsafe { libc::clone(wait, top, libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut()) };
    Errno::result(pid).context("clone")
}

fn rest() {
    #[expect(unsafe_code, reason = "the libc function may touch memory that is shared")]
    // SAFETY: waits for nothing, for ever.
    unsafe {
        libc::syscall(libc::SYS_ppoll, 0, 0, 0, 0);
    }
}

/// Forks a process that does something as soon as it can read a byte, and then waits.
fn start(trigger: RawFd, then: fn()) -> Result<i32> {
    #[expect(unsafe_code, reason = "this one needs a memory of its own")]
    // SAFETY: the child calls only async-signal-safe functions and never returns.
    let forked = unsafe { fork() }.context("fork")?;
    match forked {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            if released(trigger) {
                then();
            }
            loop {
                rest();
            }
        }
    }
}

/// Async-signal-safe: a second thread that waits, and the end of this one alone.
fn lose_the_leader() {
    extern "C" fn wait(_nothing: *mut libc::c_void) -> libc::c_int {
        loop {
            rest();
        }
    }
    const THREAD: libc::c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    static STACK: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
    let top = STACK.as_ptr_range().end.cast_mut().cast();
    #[expect(unsafe_code, reason = "no safe function makes a thread without memory to allocate")]
    // SAFETY: the stack is a static of atomics in a memory that nobody else writes to; the thread only makes system
    // calls.
    unsafe {
        libc::clone(wait, top, THREAD, std::ptr::null_mut());
    }
    #[expect(unsafe_code, reason = "no safe function ends one thread")]
    // SAFETY: nothing on this one's stack is borrowed by the other.
    unsafe {
        libc::syscall(libc::SYS_exit, 0);
    }
}

/// Async-signal-safe: waits for a byte.
fn released(trigger: RawFd) -> bool {
    let mut byte = [0_u8];
    loop {
        #[expect(unsafe_code, reason = "a read that needs no owned descriptor")]
        // SAFETY: the buffer is one byte long and lives across the call.
        let read = unsafe { libc::read(trigger, byte.as_mut_ptr().cast(), 1) };
        if read == 1 {
            return true;
        }
        if read == 0 || Errno::last() != Errno::EINTR {
            return false;
        }
    }
}

/// Async-signal-safe: forks children that wait.
fn brood() {
    for _ in 0..BROOD {
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: the child waits for ever.
        if let Ok(ForkResult::Child) = unsafe { fork() } {
            loop {
                rest();
            }
        }
    }
}
