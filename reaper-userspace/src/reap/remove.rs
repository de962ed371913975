//! Removes a cgroup tree, descendants first.
//!
//! errno table of the removal: ENOENT and ENODEV are success (systemd or the runtime was faster), EBUSY means that
//! tasks are still exiting or a child appeared and is tried again with back-off, everything else ends the step.

use std::sync::mpsc;
use std::time::Duration;

use super::freezer::pause;
use super::{Held, Timing};
use crate::cgroupfs::{CgroupControl as _, CgroupDir, Removal};
use crate::ident::Lookup;

const FIRST_WAIT: Duration = Duration::from_micros(500);
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Removes the tree on a disposable thread: rmdir can block in the kernel from 7.0 on, and must not take us with it.
pub(super) fn remove(held: Held, timing: Timing) -> Result<(), String> {
    let path = held.target.path.clone();
    let (send, receive) = mpsc::channel();
    let job = move || {
        // The receiver is gone only after the deadline, when nobody wants the answer any more.
        let _too_late = send.send(remove_tree(&held.parent, &held.dir, timing)).is_err();
    };
    let spawned = std::thread::Builder::new().name("rmdir".to_owned()).spawn(job);
    spawned.map_err(|source| format!("no thread to remove {path}: {source}"))?;
    let left = timing.deadline.since((timing.now)()).saturating_add(LONGEST_WAIT);
    receive.recv_timeout(left).unwrap_or_else(|_| Err(format!("rmdir of {path} blocks in the kernel")))
}

fn remove_tree(parent: &CgroupDir, dir: &CgroupDir, timing: Timing) -> Result<(), String> {
    let mut wait = FIRST_WAIT;
    loop {
        remove_children(dir, timing)?;
        match remove_one(parent, dir)? {
            Attempt::Done => return Ok(()),
            Attempt::Busy(reason) if timing.expired() => return Err(reason),
            Attempt::Busy(_) => {
                pause(wait);
                wait = wait.saturating_mul(2).min(LONGEST_WAIT);
            }
        }
    }
}

fn remove_children(dir: &CgroupDir, timing: Timing) -> Result<(), String> {
    let names = match dir.children() {
        Lookup::Found(names) => names,
        Lookup::NotFound => return Ok(()),
        Lookup::Unavailable(reason) => return Err(reason),
    };
    for name in names {
        match dir.child(&name) {
            Lookup::Found(child) => remove_tree(dir, &child, timing)?,
            Lookup::NotFound => {}
            Lookup::Unavailable(reason) => return Err(reason),
        }
    }
    Ok(())
}

enum Attempt {
    Done,
    Busy(String),
}

fn remove_one(parent: &CgroupDir, dir: &CgroupDir) -> Result<Attempt, String> {
    let Some(name) = dir.path().name() else {
        return Err("the root of a hierarchy is never removed".to_owned());
    };
    match parent.remove_child(name, dir.cgroup()) {
        Ok(Removal::Removed | Removal::AlreadyGone) => Ok(Attempt::Done),
        Ok(Removal::OtherCgroup(other)) => {
            Err(format!("{} is cgroup {} now and was left alone", dir.path(), other.id.0))
        }
        Err(error) if error.is_gone() => Ok(Attempt::Done),
        Err(error) if error.is_busy() => Ok(Attempt::Busy(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}
