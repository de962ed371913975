//! Kills every process of a leaked container's trees, and waits until they are gone.
//!
//! One round: close the freezers → hold the members (`members`) → refuse if one of them does not belong → SIGKILL
//! each by pidfd → open the freezers → wait for the pidfds. Rounds repeat until nothing is populated or the deadline
//! has come.
//!
//! # Why not `cgroup.kill`
//! It kills whoever is in the cgroup at that moment, so also a process that was moved in after the last look: the
//! init of a container that is started again with the same name, say. A pidfd of a proven member cannot hit anybody
//! else. Against forks, which `cgroup.kill` is for, the freezer stands: what is stopped does not fork. And
//! `cgroup.kill` misses a process whose leader thread has exited (6.1, 6.18, 7.2).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::freezer::{Freezers, blocked, pause};
use super::hook::{self, Point};
use super::members::{Early, hold, listed, strangers, walk};
use super::{Held, Remaining, Timing};
use crate::fact::Controllers;
use crate::ident::{Lookup, ProcessKey, Tgid};
use crate::procfs::{self, Member};

/// Wait before looking again when the pidfds are done and the cgroup still counts as populated: kernels from 6.19
/// on report it from a later context switch.
const SETTLE: Duration = Duration::from_millis(1);

/// How long a round waits for ends before the next one begins, which opens a freezer that somebody closed meanwhile.
const ROUND_WAIT: Duration = Duration::from_millis(100);

/// How a kill went.
#[derive(Debug, Default)]
pub(super) struct Killing {
    pub(super) killed: BTreeSet<ProcessKey>,
    /// What they call themselves.
    pub(super) comms: BTreeMap<ProcessKey, String>,
    /// Signalled, and not known to have ended.
    signalled: Vec<Member>,
    /// Whom the kill might touch.
    pub(super) familiar: BTreeSet<ProcessKey>,
    /// Signals that reached a process.
    pub(super) sent: usize,
    pub(super) bystanders: BTreeSet<ProcessKey>,
    /// Still in the trees.
    pub(super) remaining: Vec<Remaining>,
    /// Judged, alive, and no longer in the trees: left alone.
    pub(super) escaped: Vec<Remaining>,
    pub(super) error: Option<String>,
}

// === impl Killing ===

impl Killing {
    /// Waits for those who were signalled, in whichever round, until the timing's deadline.
    fn await_ends(&mut self, timing: Timing) -> Result<(), String> {
        for member in std::mem::take(&mut self.signalled) {
            if await_end(&member, timing)? {
                self.killed.insert(member.key());
                self.comms.insert(member.key(), member.comm().to_owned());
            } else {
                self.signalled.push(member);
            }
        }
        Ok(())
    }
}

/// Kills everything in `trees`. `judged` are the members that were judged last: a stranger among the members that
/// does not descend from them ends the act, in the first round before any signal. `planned` were judged before, and
/// `early` are those of them that are held already.
pub(super) fn kill(
    trees: &[&Held],
    judged: &BTreeSet<ProcessKey>,
    planned: &BTreeSet<ProcessKey>,
    mut early: Early,
    timing: Timing,
) -> Killing {
    let mut killing = Killing::default();
    let mut familiar = judged.clone();
    early.retain(|_, candidate| judged.contains(&candidate.key()));
    killing.error = rounds(trees, &mut familiar, early, timing, &mut killing).err();
    // Who ended since is counted, too.
    if let Err(error) = killing.await_ends(Timing { deadline: (timing.now)(), ..timing }) {
        killing.error.get_or_insert(error);
    }
    killing.bystanders = killing.killed.difference(&familiar).copied().collect();
    killing.familiar = familiar;
    if killing.error.is_some() {
        killing.remaining = remaining(trees);
    }
    killing.escaped = escaped(&(planned | judged), &killing);
    killing
}

fn rounds(
    trees: &[&Held],
    judged: &mut BTreeSet<ProcessKey>,
    mut early: Early,
    timing: Timing,
    killing: &mut Killing,
) -> Result<(), String> {
    loop {
        one_round(trees, judged, std::mem::take(&mut early), timing, killing)?;
        match populated(trees) {
            Lookup::Found(false) | Lookup::NotFound => return Ok(()),
            Lookup::Found(true) | Lookup::Unavailable(_) if !timing.expired() => pause(SETTLE),
            Lookup::Found(true) => {
                let why = blocked(trees).unwrap_or_else(|| "processes do not end".to_owned());
                return Err(format!("still populated after {:?}: {why}", super::BOUND));
            }
            Lookup::Unavailable(reason) => return Err(reason),
        }
    }
}

fn one_round(
    trees: &[&Held],
    judged: &mut BTreeSet<ProcessKey>,
    early: Early,
    timing: Timing,
    killing: &mut Killing,
) -> Result<(), String> {
    let mut freezers = Freezers::close(trees)?;
    hook::pass(Point::Frozen);
    let members = hold(trees, early, || freezers.settle(timing))?;
    if let Some(stranger) = strangers(&members, judged).first() {
        let none = killing.killed.is_empty() && killing.signalled.is_empty();
        let rest = if none { "nothing was killed" } else { "it was left alone" };
        return Err(format!("process {stranger} came from outside after the verdict, {rest}"));
    }
    if !members.is_empty() {
        freezers.signalled();
    }
    for member in &members {
        hook::pass(Point::Signal);
        killing.sent = killing.sent.saturating_add(usize::from(signal(member)?));
    }
    hook::pass(Point::Signalled);
    freezers.open();
    hook::pass(Point::Thawed);
    killing.signalled.extend(members);
    killing.await_ends(Timing { deadline: timing.within(ROUND_WAIT), ..timing })?;
    hook::pass(Point::Ended);
    Ok(())
}

/// True if there was somebody to signal.
#[expect(clippy::disallowed_methods, reason = "the one place that signals, through a pidfd proven a member")]
fn signal(member: &Member) -> Result<bool, String> {
    let key = member.key();
    never(key)?;
    match rustix::process::pidfd_send_signal(member.as_fd(), Signal::KILL) {
        Ok(()) => Ok(true),
        // It was reaped meanwhile, and the pidfd names nobody else.
        Err(Errno::SRCH) => Ok(false),
        Err(source) => Err(format!("cannot kill process {key}: {source}")),
    }
}

/// Refuses those who are never signalled, whatever was judged.
pub(super) fn never(key: ProcessKey) -> Result<(), String> {
    if key.tgid == Tgid::INIT || key.tgid.get() == std::process::id() {
        return Err(format!("refusing to signal process {key}"));
    }
    Ok(())
}

/// Waits until the whole thread group has exited (true) or the deadline has passed (false).
fn await_end(member: &Member, timing: Timing) -> Result<bool, String> {
    loop {
        let left = timing.deadline.since((timing.now)());
        match ended_within(member, left) {
            Ok(true) => return Ok(true),
            Ok(false) | Err(Errno::INTR) if timing.expired() => return Ok(false),
            Ok(false) | Err(Errno::INTR) => {}
            Err(source) => return Err(format!("cannot wait for process {}: {source}", member.key())),
        }
    }
}

fn ended_within(member: &Member, wait: Duration) -> Result<bool, Errno> {
    let wait = Timespec::try_from(wait).map_err(|_too_long| Errno::INVAL)?;
    let mut fds = [PollFd::new(member, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&wait))? > 0)
}

fn populated(trees: &[&Held]) -> Lookup<bool> {
    for tree in trees {
        // v2 answers for the whole tree, v1 for exactly one cgroup.
        let below = match tree.target.controllers {
            Controllers::Unified => Ok(vec![]),
            Controllers::Freezer | Controllers::Other => walk(&tree.dir),
        };
        let below = match below {
            Ok(below) => below,
            Err(reason) => return Lookup::Unavailable(reason),
        };
        for dir in std::iter::once(&tree.dir).chain(&below) {
            match dir.populated() {
                Lookup::Found(false) | Lookup::NotFound => {}
                answer @ (Lookup::Found(true) | Lookup::Unavailable(_)) => return answer,
            }
        }
    }
    Lookup::Found(false)
}

fn remaining(trees: &[&Held]) -> Vec<Remaining> {
    let numbers: BTreeSet<Tgid> = trees.iter().filter_map(|tree| listed(&tree.dir).ok()).flatten().collect();
    numbers.into_iter().filter_map(describe).collect()
}

fn describe(tgid: Tgid) -> Option<Remaining> {
    let Lookup::Found(fact) = procfs::read(tgid) else { return None };
    let channel = match procfs::wait_channel(tgid) {
        Lookup::Found(channel) => channel,
        Lookup::NotFound | Lookup::Unavailable(_) => "unknown".to_owned(),
    };
    Some(Remaining { process: fact.key, comm: fact.comm, state: format!("{:?} in {channel}", fact.state) })
}

/// Processes that were moved away after they were judged and before they were held. Outside the cgroup nothing is killed.
fn escaped(judged: &BTreeSet<ProcessKey>, killing: &Killing) -> Vec<Remaining> {
    let here = |key| killing.remaining.iter().any(|remaining| remaining.process == key);
    let alive = |key: ProcessKey| procfs::alive(key) == Lookup::Found(true);
    judged
        .difference(&killing.killed)
        .copied()
        .filter(|key| !here(*key) && alive(*key))
        .filter_map(|key| describe(key.tgid).filter(|found| found.process == key))
        .collect()
}
