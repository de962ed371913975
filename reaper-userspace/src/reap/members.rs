//! Who is in a held tree, by pidfd.
//!
//! The order is the whole point: list (numbers) → open a pidfd for each → list again through the held directory →
//! check that each pidfd's process is still attached to its number. A number that is in the second list while the
//! pidfd stayed attached from before to after that list denotes the pidfd's process: a number is released only when
//! its process is reaped, and then the pidfd is detached for ever (`kernel/exit.c:__unhash_process`).

use std::collections::{BTreeMap, BTreeSet};

use crate::cgroupfs::CgroupDir;
use crate::ident::{Lookup, ProcessKey, Tgid};
use crate::procfs::{self, PidHandle};

/// All cgroups below `root`, parents first; those that vanish meanwhile are left out.
pub(super) fn walk(root: &CgroupDir) -> Result<Vec<CgroupDir>, String> {
    let mut found: Vec<CgroupDir> = vec![];
    let children_of = |dir: &CgroupDir| -> Result<Vec<CgroupDir>, String> {
        let names = or_reason(dir.children())?.unwrap_or_default();
        let mut opened = vec![];
        for name in names {
            opened.extend(or_reason(dir.child(&name))?);
        }
        Ok(opened)
    };
    let mut level = children_of(root)?;
    while !level.is_empty() {
        let mut next = vec![];
        for dir in &level {
            next.extend(children_of(dir)?);
        }
        found.append(&mut level);
        level = next;
    }
    Ok(found)
}

fn or_reason<T>(lookup: Lookup<T>) -> Result<Option<T>, String> {
    match lookup {
        Lookup::Found(value) => Ok(Some(value)),
        Lookup::NotFound => Ok(None),
        Lookup::Unavailable(reason) => Err(reason),
    }
}

fn listed(root: &CgroupDir) -> Result<BTreeSet<Tgid>, String> {
    let mut all: BTreeSet<Tgid> = or_reason(root.members())?.into_iter().flatten().collect();
    for dir in walk(root)? {
        all.extend(or_reason(dir.members())?.into_iter().flatten());
    }
    Ok(all)
}

/// Handles of the processes in the tree, proven members at one moment while held.
pub(super) fn hold_members(root: &CgroupDir) -> Result<Vec<PidHandle>, String> {
    let mut handles = BTreeMap::new();
    for tgid in listed(root)? {
        if let Some(start) = or_reason(procfs::start_of(tgid))?
            && let Some(handle) = or_reason(PidHandle::open(ProcessKey { tgid, start }))?
        {
            handles.insert(tgid, handle);
        }
    }
    let still = listed(root)?;
    let mut members = vec![];
    for (tgid, handle) in handles {
        if still.contains(&tgid) && or_reason(handle.is_attached())? == Some(true) {
            members.push(handle);
        }
    }
    Ok(members)
}
