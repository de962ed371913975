//! Kills every process of a leaked container's trees, and waits until they are gone.
//!
//! One round: hold members (`members`) → `cgroup.kill` where the kernel has it, which no fork escapes → SIGKILL by
//! pidfd (`cgroup.kill` misses a process whose leader thread has exited: seen on 6.1, 6.18 and 7.2, not on 6.12.117,
//! so no version is asked) → thaw → wait for the pidfds. Rounds
//! repeat until nothing is populated or the deadline has come.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use super::freezer::{freeze, pause};
use super::members::hold_members;
use super::{Held, Remaining, Timing};
use crate::cgroupfs::CgroupControl as _;
use crate::fact::Controllers;
use crate::ident::{Lookup, ProcessKey, Tgid};
use crate::procfs::{self, PidHandle};

/// Wait before looking again when the pidfds are done and the cgroup still counts as populated: kernels from 6.19
/// on report it from a later context switch.
const SETTLE: Duration = Duration::from_millis(1);

/// How a kill went.
#[derive(Debug)]
pub(super) struct Killing {
    pub(super) killed: BTreeSet<ProcessKey>,
    pub(super) bystanders: BTreeSet<ProcessKey>,
    pub(super) by_cgroup_kill: bool,
    pub(super) remaining: Vec<Remaining>,
    pub(super) result: Result<(), String>,
}

/// Kills everything in `trees`. `known` are the members that were judged: a stranger among the members that does
/// not descend from them stops the act before the first signal.
pub(super) fn kill(trees: &[&Held], known: &BTreeSet<ProcessKey>, timing: Timing) -> Killing {
    let mut killing = Killing {
        killed: BTreeSet::new(),
        bystanders: BTreeSet::new(),
        by_cgroup_kill: false,
        remaining: vec![],
        result: Ok(()),
    };
    let mut held_back = None;
    for round in 0_u32.. {
        match one_round(trees, known, round, timing, &mut killing) {
            Ok(blocked) => held_back = blocked,
            Err(reason) => {
                killing.result = Err(reason);
                return killing;
            }
        }
        match populated(trees) {
            Lookup::Found(false) | Lookup::NotFound => return killing,
            Lookup::Found(true) | Lookup::Unavailable(_) if !timing.expired() => pause(SETTLE),
            Lookup::Found(true) => break,
            Lookup::Unavailable(reason) => {
                killing.result = Err(reason);
                return killing;
            }
        }
    }
    killing.remaining = remaining(trees);
    let why = held_back.unwrap_or_else(|| "processes do not end".to_owned());
    killing.result = Err(format!("still populated after {:?}: {why}", super::BOUND));
    killing
}

/// One round; says what keeps the tree frozen, if something does.
fn one_round(
    trees: &[&Held],
    known: &BTreeSet<ProcessKey>,
    round: u32,
    timing: Timing,
    killing: &mut Killing,
) -> Result<Option<String>, String> {
    let frozen = to_freeze(trees).map(|tree| freeze(&tree.dir, timing));
    let mut handles = vec![];
    for tree in trees {
        handles.extend(hold_members(&tree.dir)?);
    }
    let strangers = strangers(&handles, known);
    if let (0, Some(stranger)) = (round, strangers.first()) {
        return Err(format!("process {stranger} came from outside after the verdict, nothing was killed"));
    }
    for tree in trees {
        killing.by_cgroup_kill |= cgroup_kill(tree);
    }
    // cgroup.kill reaches only what v2 lists, and misses a process without its leader thread: each member gets a
    // signal of its own at once, as waiting for what was missed would use up the bound.
    for handle in &handles {
        signal(handle)?;
    }
    let blocked = frozen.as_ref().and_then(super::freezer::Thaw::now);
    let until = timing.deadline;
    for handle in handles {
        if handle.poll_exit(until) == Lookup::Found(true) {
            killing.killed.insert(handle.key());
            if strangers.contains(&handle.key()) {
                killing.bystanders.insert(handle.key());
            }
        }
    }
    Ok(blocked)
}

/// The tree to hold still while its members are listed: v1's freezer, or v2 before 5.14, which has no `cgroup.kill`.
fn to_freeze<'a>(trees: &[&'a Held]) -> Option<&'a Held> {
    let freezer = trees.iter().find(|tree| tree.target.controllers == Controllers::Freezer);
    let listed_by_hand = || {
        trees.iter().find(|tree| {
            tree.target.controllers == Controllers::Unified && tree.dir.has_kill() == Lookup::Found(false)
        })
    };
    freezer.or_else(listed_by_hand).copied()
}

/// Whether the tree could be killed as a whole.
fn cgroup_kill(tree: &Held) -> bool {
    if tree.target.controllers != Controllers::Unified || tree.dir.has_kill() != Lookup::Found(true) {
        return false;
    }
    match tree.dir.kill() {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(cgroup = %tree.target.path, %error, "cgroup.kill failed, signalling each process");
            error.is_gone()
        }
    }
}

/// Those present that were neither judged nor descend from one that was.
fn strangers(handles: &[PidHandle], known: &BTreeSet<ProcessKey>) -> Vec<ProcessKey> {
    let mut familiar: BTreeSet<Tgid> = known.iter().map(|key| key.tgid).collect();
    // Children have later numbers only until the numbers wrap, so go over the list until nothing is added.
    let mut strangers: Vec<ProcessKey> =
        handles.iter().map(PidHandle::key).filter(|key| !known.contains(key)).collect();
    while !strangers.is_empty() {
        let before = strangers.len();
        strangers.retain(|key| {
            let parent = match procfs::read(key.tgid) {
                Lookup::Found(process) if process.key == *key => process.parent,
                // It has ended meanwhile: nobody is there to be protected.
                Lookup::Found(_) | Lookup::NotFound => return false,
                Lookup::Unavailable(_) => None,
            };
            let related = parent.is_some_and(|parent| familiar.contains(&parent));
            if related {
                familiar.insert(key.tgid);
            }
            !related
        });
        if strangers.len() == before {
            break;
        }
    }
    strangers
}

#[expect(clippy::disallowed_methods, reason = "the one place that signals, through a pidfd proven a member")]
fn signal(handle: &PidHandle) -> Result<(), String> {
    let key = handle.key();
    if key.tgid == Tgid::INIT || u64::from(key.tgid.get()) == u64::from(std::process::id()) {
        return Err(format!("refusing to signal process {key}"));
    }
    match rustix::process::pidfd_send_signal(handle.as_fd(), Signal::KILL) {
        // ESRCH: it was reaped meanwhile, and the pidfd names nobody else.
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(source) => Err(format!("cannot kill process {key}: {source}")),
    }
}

fn populated(trees: &[&Held]) -> Lookup<bool> {
    for tree in trees {
        let below = match super::members::walk(&tree.dir) {
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
    let mut seen = BTreeSet::new();
    trees
        .iter()
        .filter_map(|tree| hold_members(&tree.dir).ok())
        .flatten()
        .filter(|handle| seen.insert(handle.key()))
        .map(|handle| describe(handle.key()))
        .collect()
}

fn describe(process: ProcessKey) -> Remaining {
    let channel = match procfs::wait_channel(process.tgid) {
        Lookup::Found(channel) => channel,
        Lookup::NotFound | Lookup::Unavailable(_) => "unknown".to_owned(),
    };
    let (comm, state) = match procfs::read(process.tgid) {
        Lookup::Found(fact) => (fact.comm, format!("{:?} in {channel}", fact.state)),
        Lookup::NotFound => (String::new(), "gone meanwhile".to_owned()),
        Lookup::Unavailable(reason) => (String::new(), reason),
    };
    Remaining { process, comm, state }
}
