//! Tells the incarnations of watched processes apart, and follows each runtime command to its end.
//!
//! `Lineage::apply(event) -> Option<Notice>` is fed every event in order. Pure: what only `/proc` knows is asked
//! through a closure. Nothing here is needed for a verdict: it says what happened, for people and as evidence.
//!
//! # Invariants
//! - An incarnation is a number and its start in nanoseconds; two within one tick are two.
//! - A number that comes back is reported once for each time it comes back, whether its end was seen or lost.
//! - At most [`LIMIT`] numbers are remembered; those that were silent longest are forgotten first.

mod command;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use command::{Claim, is_command};

use crate::event::{Act, Comm, Event, Occurrence};
use crate::fact::{EndedCommand, Invocation, ProcessEnd};
use crate::ident::{ProcessKey, Tgid};
use crate::time::BootTime;
use command::Running;

/// Numbers remembered: several times what the kernel side watches, as the dead are remembered too.
pub const LIMIT: usize = 16_384;

/// How names of shims begin.
const SHIM: &[u8] = b"containerd-shim";

/// One use of a process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// The number.
    pub tgid: Tgid,
    /// When this process started.
    pub born: BootTime,
}

/// A watched number was given to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Who had it.
    pub before: Incarnation,
    /// When that one ended; `None` if its end was not seen.
    pub ended: Option<BootTime>,
    /// Who has it now.
    pub after: Incarnation,
}

/// What an event meant beyond itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A number came back.
    Reused(Reuse),
    /// A runtime's command ended.
    CommandEnded(Box<EndedCommand>),
}

/// Everything known about watched processes, living and dead.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    lives: BTreeMap<Tgid, Life>,
}

/// The last known process of a number.
#[derive(Clone, Debug)]
struct Life {
    born: BootTime,
    ended: Option<BootTime>,
    heard: BootTime,
    shim: Option<ProcessKey>,
    command: Option<Running>,
}

// === impl Lineage ===

impl Lineage {
    /// Takes one event; `ask` reads what a process that has just become a runtime says about itself.
    pub fn apply(&mut self, event: &Event, ask: impl FnOnce(ProcessKey) -> Option<Claim>) -> Option<Notice> {
        match event.what {
            Occurrence::Forked { creator, child, born, comm } => {
                let reuse = self.meet(child.tgid, born, event.at);
                if let Some(life) = self.lives.get_mut(&child.tgid) {
                    life.shim = comm.as_bytes().starts_with(SHIM).then_some(creator);
                }
                reuse
            }
            Occurrence::Execed { process, born, comm } => {
                let reuse = self.meet(process.tgid, born, event.at);
                self.executed(process, comm, event.at, ask);
                reuse
            }
            Occurrence::Exited { process, born, status, .. } => {
                let reuse = self.meet(process.tgid, born, event.at);
                self.ended(process, status.map(ProcessEnd::from_status), event.at).or(reuse)
            }
            Occurrence::Unidentified { act, tgid, .. } => {
                self.heard_of_number(act, tgid, event.at);
                None
            }
            Occurrence::CgroupMade { .. }
            | Occurrence::CgroupRemoved { .. }
            | Occurrence::CgroupPopulated { .. }
            | Occurrence::CgroupFrozen { .. }
            | Occurrence::Killed { .. } => None,
        }
    }

    /// The process that a number means now, as far as was seen.
    pub fn current(&self, tgid: Tgid) -> Option<Incarnation> {
        let life = self.lives.get(&tgid).filter(|life| life.ended.is_none())?;
        Some(Incarnation { tgid, born: life.born })
    }

    /// The shim that made this process, if it was seen doing so.
    pub fn shim_of(&self, tgid: Tgid) -> Option<ProcessKey> {
        self.lives.get(&tgid)?.shim
    }

    /// The command that this process was given, while it runs and if it could be read.
    pub fn invocation_of(&self, tgid: Tgid) -> Option<&Invocation> {
        self.lives.get(&tgid)?.command.as_ref()?.invocation()
    }

    fn meet(&mut self, tgid: Tgid, born: BootTime, at: BootTime) -> Option<Notice> {
        if let Some(life) = self.lives.get_mut(&tgid)
            && life.born == born
        {
            life.heard = at;
            return None;
        }
        self.make_room();
        let life = Life { born, ended: None, heard: at, shim: None, command: None };
        let before = self.lives.insert(tgid, life)?;
        Some(Notice::Reused(Reuse {
            before: Incarnation { tgid, born: before.born },
            ended: before.ended,
            after: Incarnation { tgid, born },
        }))
    }

    fn executed(
        &mut self,
        process: ProcessKey,
        comm: Comm,
        at: BootTime,
        ask: impl FnOnce(ProcessKey) -> Option<Claim>,
    ) {
        if let Some(life) = self.lives.get_mut(&process.tgid) {
            life.command = Running::after_exec(life.command.take(), comm, at, || ask(process));
        }
    }

    /// How a command ended is known, or nothing is said of its end.
    fn ended(&mut self, process: ProcessKey, end: Option<ProcessEnd>, at: BootTime) -> Option<Notice> {
        let life = self.lives.get_mut(&process.tgid)?;
        life.ended = Some(at);
        let running = life.command.take()?;
        let ended = running.end(process, life.shim, end?, at);
        Some(Notice::CommandEnded(Box::new(ended)))
    }

    /// Whoever had this number is no more when it ends, or when it is given out anew.
    fn heard_of_number(&mut self, act: Act, tgid: Tgid, at: BootTime) {
        let over = matches!(act, Act::Forked | Act::Exited);
        if let Some(life) = self.lives.get_mut(&tgid).filter(|life| over && life.ended.is_none()) {
            life.ended = Some(at);
            life.command = None;
        }
    }

    /// Forgets the half that was silent longest.
    fn make_room(&mut self) {
        if self.lives.len() < LIMIT {
            return;
        }
        let mut heard: Vec<BootTime> = self.lives.values().map(|life| life.heard).collect();
        let (_, middle, _) = heard.select_nth_unstable(LIMIT / 2);
        let middle = *middle;
        self.lives.retain(|_, life| life.heard > middle);
    }
}
