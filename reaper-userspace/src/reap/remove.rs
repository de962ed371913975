//! Removes a cgroup tree, descendants first.
//!
//! errno table of the removal: ENOENT and ENODEV are success (systemd or the runtime was faster), EBUSY means that
//! tasks are still exiting or a child appeared and is tried again with back-off, everything else ends the step.
//!
//! Whoever is found in the cgroup and is not of the dead came after the kill, and whoever has its name now uses it:
//! then the removal ends, and so must everything after it.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use super::freezer::pause;
use super::guard;
use super::hook::{self, Point};
use super::{Held, Timing};
use crate::cgroupfs::{CgroupControl as _, CgroupDir, Child};
use crate::fact::Controllers;
use crate::ident::{CgroupPath, Lookup, ProcessKey};
use crate::kernel::chain;
use crate::procfs;

const FIRST_WAIT: Duration = Duration::from_micros(100);
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How long systemd is left to take a scope's cgroup away itself; the kernel holds its notice back for 10 ms at most
/// (`kernel/cgroup/cgroup.c:CGROUP_FILE_NOTIFY_MIN_INTV`).
const SCOPE_PATIENCE: Duration = Duration::from_millis(250);

/// Why a tree was not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// A process that is not of the dead.
    #[error("process {process} came into {path} meanwhile and was left alone")]
    Newcomer {
        /// The process.
        process: ProcessKey,
        /// Where.
        path: CgroupPath,
    },
    /// Another cgroup has the name.
    #[error("{path} is cgroup {other} now and was left alone")]
    Successor {
        /// The name.
        path: CgroupPath,
        /// Its id.
        other: u64,
    },
    /// It lives on, elsewhere.
    #[error("{0} has another name now and was left alone")]
    Renamed(CgroupPath),
    /// Everything else.
    #[error("{0}")]
    Other(String),
}

// === impl Failure ===

impl Failure {
    /// True if somebody uses the cgroup or its name.
    pub(super) const fn taken_over(&self) -> bool {
        match self {
            Self::Newcomer { .. } | Self::Successor { .. } | Self::Renamed(_) => true,
            Self::Other(_) => false,
        }
    }
}

/// A disposable thread that removes: rmdir can block in the kernel from 7.0 on, and must not take us with it. One for
/// an act, started before the first step, so that it is there when the processes are gone. Ends with its value.
#[derive(Debug)]
pub(super) struct Remover {
    /// `None` once a removal did not come back.
    jobs: Option<mpsc::Sender<Job>>,
}

/// One tree to remove, and where to say what became of it.
#[derive(Debug)]
struct Job {
    held: Held,
    removing: Removing,
    answer: mpsc::Sender<Result<(), Failure>>,
}

#[derive(Debug)]
struct Removing {
    dead: BTreeSet<ProcessKey>,
    timing: Timing,
}

// === impl Remover ===

impl Remover {
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || {
            for Job { held, removing, answer } in queue {
                // The receiver is gone only after the deadline, when nobody wants the answer any more.
                removing.leave_to_systemd(&held);
                let _too_late = answer.send(removing.tree(&held.parent, &held.dir)).is_err();
            }
        };
        std::thread::Builder::new().name("rmdir".to_owned()).spawn(work)?;
        Ok(Self { jobs: Some(jobs) })
    }

    /// Removes the tree. `dead` are those that may still be on their way out of it.
    pub(super) fn remove(
        &mut self,
        held: Held,
        dead: BTreeSet<ProcessKey>,
        timing: Timing,
    ) -> Result<(), Failure> {
        let path = held.target.path.clone();
        let (answer, answered) = mpsc::channel();
        let job = Job { held, removing: Removing { dead, timing }, answer };
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        let left = timing.deadline.since((timing.now)()).saturating_add(LONGEST_WAIT);
        let result = if sent { answered.recv_timeout(left).ok() } else { None };
        result.unwrap_or_else(|| {
            self.jobs = None;
            Err(Failure::Other(format!("{path} is not removed: an rmdir blocks in the kernel")))
        })
    }
}

// === impl Removing ===

impl Removing {
    /// systemd watches `cgroup.events` of its scopes. If the directory goes before the notice that nobody is left comes,
    /// the watch goes with it, and the unit stays active for ever (seen with systemd 257).
    fn leave_to_systemd(&self, held: &Held) {
        let is_scope =
            held.target.path.name().is_some_and(|name| name.as_encoded_bytes().ends_with(b".scope"));
        if !is_scope || held.target.controllers != Controllers::Unified {
            return;
        }
        let began = (self.timing.now)();
        while !held.dir.is_removed()
            && !self.timing.expired()
            && (self.timing.now)().since(began) < SCOPE_PATIENCE
        {
            pause(FIRST_WAIT.saturating_mul(20));
        }
    }

    fn tree(&self, parent: &CgroupDir, dir: &CgroupDir) -> Result<(), Failure> {
        let mut wait = FIRST_WAIT;
        loop {
            self.children(dir)?;
            self.in_time(dir)?;
            hook::pass(Point::Remove);
            match remove_one(parent, dir)? {
                Attempt::Done => return Ok(()),
                Attempt::Busy(reason) if self.timing.expired() => return Err(Failure::Other(reason)),
                Attempt::Busy(_) => {
                    self.only_the_dead(dir)?;
                    pause(wait);
                    wait = wait.saturating_mul(2).min(LONGEST_WAIT);
                }
            }
        }
    }

    fn children(&self, dir: &CgroupDir) -> Result<(), Failure> {
        let names = match dir.children() {
            Lookup::Found(names) => names,
            Lookup::NotFound => return Ok(()),
            Lookup::Unavailable(reason) => return Err(Failure::Other(reason)),
        };
        for name in names {
            self.in_time(dir)?;
            match dir.child(&name) {
                Lookup::Found(child) => self.tree(dir, &child)?,
                Lookup::NotFound => {}
                Lookup::Unavailable(reason) => return Err(Failure::Other(reason)),
            }
        }
        Ok(())
    }

    /// Past the deadline the outcome is on record, and nothing more may be removed.
    fn in_time(&self, dir: &CgroupDir) -> Result<(), Failure> {
        if !self.timing.expired() {
            return Ok(());
        }
        Err(Failure::Other(format!("removing {} takes longer than {:?}", dir.path(), super::BOUND)))
    }

    fn only_the_dead(&self, dir: &CgroupDir) -> Result<(), Failure> {
        for tgid in dir.members().found().into_iter().flatten() {
            if let Lookup::Found(start) = procfs::start_of(*tgid) {
                let process = ProcessKey { tgid: *tgid, start };
                if !self.dead.contains(&process) {
                    return Err(Failure::Newcomer { process, path: dir.path().clone() });
                }
            }
        }
        Ok(())
    }
}

enum Attempt {
    Done,
    Busy(String),
}

fn remove_one(parent: &CgroupDir, dir: &CgroupDir) -> Result<Attempt, Failure> {
    let path = dir.path().clone();
    let Some(name) = path.name() else {
        return Err(Failure::Other("the root of a hierarchy is never removed".to_owned()));
    };
    let doomed = match parent.doomed(name, dir.cgroup()) {
        Ok(Child::Same(doomed)) => doomed,
        Ok(Child::Other(other)) => return Err(Failure::Successor { other: other.id.0, path }),
        Ok(Child::Gone) => return ended(dir, path),
        Err(error) => return Err(Failure::Other(chain(&error))),
    };
    hook::pass(Point::Rmdir);
    let removed = guard::only(dir.cgroup().id.0, || doomed.remove());
    match removed.map_err(|error| Failure::Other(chain(&error)))? {
        Ok(_removed_or_gone) => ended(dir, path),
        Err(error) if error.is_refused() => Ok(Attempt::Busy(chain(&error))),
        Err(error) if error.is_busy() => Ok(Attempt::Busy(chain(&error))),
        Err(error) => Err(Failure::Other(chain(&error))),
    }
}

/// v1 cgroups can be renamed: only the held directory tells.
fn ended(dir: &CgroupDir, path: CgroupPath) -> Result<Attempt, Failure> {
    if dir.is_removed() { Ok(Attempt::Done) } else { Err(Failure::Renamed(path)) }
}
