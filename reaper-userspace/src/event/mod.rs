//! Records of the rings, as events.
//!
//! Decoding is total: any bytes give an [`Event`] or a [`DecodeError`]. An event is a hint: it says when and where
//! to look, and proves nothing about the present.

mod comm;
mod decode;

pub use comm::Comm;
pub use decode::DecodeError;

use crate::ident::{CgroupId, CgroupRef, ProcessKey, StartTicks, Tgid};
use crate::time::BootTime;

/// Something the kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: BootTime,
    /// What.
    pub what: Occurrence,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// A cgroup was made below a tracked one, and is tracked from now on.
    CgroupMade {
        /// The new cgroup.
        cgroup: CgroupRef,
        /// The cgroup it was made in, of the same hierarchy; `None` if the kernel's side could not know it.
        parent: Option<CgroupId>,
        /// Depth; the root is 0.
        level: u32,
        /// The process that made it: the runtime itself, or systemd where that is the driver.
        maker: Actor,
    },
    /// A tracked cgroup was removed.
    CgroupRemoved {
        /// The removed cgroup.
        cgroup: CgroupRef,
        /// Depth; the root is 0.
        level: u32,
        /// The process that removed it.
        remover: Actor,
    },
    /// The first task entered a tracked cgroup's subtree, or the last one left.
    CgroupPopulated {
        /// The cgroup.
        cgroup: CgroupRef,
        /// Whether the subtree has a task now.
        populated: bool,
    },
    /// A tracked v2 cgroup became frozen or thawed. An empty one whose freeze is set becomes frozen too.
    CgroupFrozen {
        /// The cgroup.
        cgroup: CgroupRef,
        /// Whether it is frozen now.
        frozen: bool,
    },
    /// A watched process made a process, which is watched from now on.
    Forked {
        /// The process that called; with `CLONE_PARENT` not the parent.
        creator: ProcessKey,
        /// The new process.
        child: ProcessKey,
        /// When the new process started, to the nanosecond: tells incarnations within one tick apart.
        born: BootTime,
        /// The creator's name.
        comm: Comm,
    },
    /// A watched process became another program, or any process became one named like a shim or runtime.
    Execed {
        /// The process.
        process: ProcessKey,
        /// When it started, to the nanosecond.
        born: BootTime,
        /// Its new name.
        comm: Comm,
    },
    /// The last thread of a watched process is about to leave its cgroup. Its number is not free yet.
    Exited {
        /// The process.
        process: ProcessKey,
        /// When it started, to the nanosecond.
        born: BootTime,
        /// Wait status of the last thread: the process's own, unless its threads ended one by one. `None` if the
        /// kernel's side could not read it.
        status: Option<i32>,
        /// The last thread's name.
        comm: Comm,
    },
    /// This very program sent SIGKILL to a process.
    Killed {
        /// The process.
        process: ProcessKey,
        /// When it started, to the nanosecond.
        born: BootTime,
        /// Its name.
        comm: Comm,
    },
    /// Something happened to a watched process of which only the number is known; see [`Event::identified`].
    Unidentified {
        /// What.
        act: Act,
        /// Its number, at that time.
        tgid: Tgid,
        /// For a new process the number of its creator.
        creator: Option<Tgid>,
        /// As for the act.
        comm: Comm,
    },
}

/// What happens to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It was made.
    Forked,
    /// It became another program.
    Execed,
    /// It is ending. Before Linux 6.16 it is its first thread that ends.
    Exited,
}

// === impl Event ===

impl Event {
    /// Says which incarnation an unidentified process is, if `start_of` still finds it: whoever gets the number later
    /// starts after the event, so a process that started before it is the one, but for two within one tick.
    #[must_use]
    pub fn identified(self, start_of: impl Fn(Tgid) -> Option<StartTicks>) -> Self {
        let Occurrence::Unidentified { act, tgid, creator, comm } = self.what else { return self };
        let known = |tgid| {
            let start = start_of(tgid).filter(|start| start.boot_nanos() <= self.at.as_nanos())?;
            Some(ProcessKey { tgid, start })
        };
        let what = known(tgid).and_then(|process| {
            let born = BootTime::from_nanos(process.start.boot_nanos());
            Some(match act {
                Act::Forked => Occurrence::Forked { creator: known(creator?)?, child: process, born, comm },
                Act::Execed => Occurrence::Execed { process, born, comm },
                Act::Exited => Occurrence::Exited { process, born, status: None, comm },
            })
        });
        Self { what: what.unwrap_or(self.what), ..self }
    }
}

/// Who did something to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Its number; `None` for a kernel thread of number 0.
    pub tgid: Option<Tgid>,
    /// Its name.
    pub comm: Comm,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(ticks: u64) -> StartTicks {
        StartTicks::from_ticks(ticks)
    }

    fn tgid(number: i64) -> Tgid {
        Tgid::new(number).unwrap()
    }

    fn at_tick(ticks: u64, act: Act) -> Event {
        let what =
            Occurrence::Unidentified { act, tgid: tgid(7), creator: Some(tgid(3)), comm: Comm::default() };
        Event { at: BootTime::from_nanos(StartTicks::from_ticks(ticks).boot_nanos().saturating_add(5)), what }
    }

    #[test]
    fn a_number_is_the_process_that_started_before_the_event() {
        let execed = at_tick(20, Act::Execed).identified(|_| Some(ticks(20)));
        let Occurrence::Execed { process, born, .. } = execed.what else { panic!("{execed:?}") };
        assert_eq!((process.tgid, process.start, born.as_nanos()), (tgid(7), ticks(20), 200_000_000));
        let exited = at_tick(20, Act::Exited).identified(|_| Some(ticks(4)));
        assert!(matches!(exited.what, Occurrence::Exited { status: None, .. }), "{exited:?}");
    }

    #[test]
    fn who_got_the_number_later_or_is_gone_is_nobody() {
        for act in [Act::Forked, Act::Execed, Act::Exited] {
            let event = at_tick(20, act);
            assert_eq!(event.identified(|_| Some(ticks(21))), event);
            assert_eq!(event.identified(|_| None), event);
        }
    }

    #[test]
    fn a_birth_needs_both() {
        let event = at_tick(20, Act::Forked);
        let both = event.identified(|who| Some(if who == tgid(3) { ticks(2) } else { ticks(20) }));
        let Occurrence::Forked { creator, child, .. } = both.what else { panic!("{both:?}") };
        assert_eq!((creator.tgid, creator.start, child.start), (tgid(3), ticks(2), ticks(20)));
        assert_eq!(event.identified(|who| (who == tgid(7)).then(|| ticks(20))), event);
    }
}
