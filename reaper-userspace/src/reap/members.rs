//! Who is in the held trees, by pidfd, and who of them belongs there.
//!
//! The order is the whole point: list (numbers) → hold the process that has each number, and read its start and its
//! parent → list again through the held directories → check that each held process still has its number. A number is
//! released only when its process is reaped, and then the pidfd is detached for ever
//! (`kernel/exit.c:__unhash_process`). So a number that is in the last list, and whose process was held before that
//! list and still has it after, stood in the list for that very process.
//!
//! Those that the plan is about are held before it is proven again, so that of the judged ones only the lists are left
//! to be read when the first step is taken.

use std::collections::{BTreeMap, BTreeSet};

use super::Held;
use super::hook::{self, Point};
use crate::cgroupfs::CgroupDir;
use crate::ident::{Lookup, ProcessKey, Tgid};
use crate::procfs::{Candidate, Member};

/// Lists at most, until one shows nobody new. A frozen tree needs two.
const LISTS: u32 = 4;

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

/// The numbers of all members of a tree. Threaded cgroups have no list: the domain above lists their processes.
pub(super) fn listed(root: &CgroupDir) -> Result<BTreeSet<Tgid>, String> {
    let mut all: BTreeSet<Tgid> = or_reason(root.members())?.into_iter().flatten().collect();
    for dir in walk(root)? {
        match dir.members() {
            Lookup::Found(members) => all.extend(members),
            Lookup::NotFound => {}
            Lookup::Unavailable(_) if dir.is_threaded() == Lookup::Found(true) => {}
            Lookup::Unavailable(reason) => return Err(reason),
        }
    }
    Ok(all)
}

fn listed_in(trees: &[&Held]) -> Result<BTreeSet<Tgid>, String> {
    let mut all = BTreeSet::new();
    for tree in trees {
        all.append(&mut listed(&tree.dir)?);
    }
    Ok(all)
}

/// Processes held by their number, and not proven to be anybody yet.
pub(super) type Early = BTreeMap<Tgid, Candidate>;

/// Holds those of the processes that can be held. Who is left out, or is somebody else by now, is held later.
pub(super) fn hold_early(processes: impl Iterator<Item = ProcessKey>) -> Early {
    processes
        .filter_map(|key| match Candidate::hold(key.tgid) {
            Lookup::Found(candidate) if candidate.key() == key => Some((key.tgid, candidate)),
            Lookup::Found(_) | Lookup::NotFound | Lookup::Unavailable(_) => None,
        })
        .collect()
}

/// The processes in the trees, each proven a member at one moment while held.
///
/// `early` are judged ones that are held already. `settled` is called once, when the members are held and before the list that counts: what was asked to stop should
/// have stopped by then.
pub(super) fn hold(trees: &[&Held], early: Early, settled: impl FnOnce()) -> Result<Vec<Member>, String> {
    let mut settled = Some(settled);
    let mut held = early;
    let mut list = listed_in(trees)?;
    hook::pass(Point::Listed);
    for _ in 0..LISTS {
        for tgid in &list {
            if !held.contains_key(tgid)
                && let Some(candidate) = or_reason(Candidate::hold(*tgid))?
            {
                held.insert(*tgid, candidate);
            }
        }
        hook::pass(Point::Held);
        if let Some(settled) = settled.take() {
            settled();
        }
        list = listed_in(trees)?;
        hook::pass(Point::Relisted);
        if list.iter().all(|tgid| held.contains_key(tgid)) {
            break;
        }
    }
    let mut members = vec![];
    for (tgid, candidate) in held {
        if list.contains(&tgid) {
            members.extend(or_reason(candidate.prove())?);
        }
    }
    Ok(members)
}

/// Those of the members that were neither judged nor descend from one that was; the others join the `judged`.
///
/// A parent counts only if it is a member itself and held: a number alone may be anybody's by now.
pub(super) fn strangers(members: &[Member], judged: &mut BTreeSet<ProcessKey>) -> Vec<ProcessKey> {
    let keys: BTreeMap<Tgid, ProcessKey> =
        members.iter().map(|member| (member.key().tgid, member.key())).collect();
    let mut strangers: Vec<&Member> =
        members.iter().filter(|member| !judged.contains(&member.key())).collect();
    // Children have later numbers only until the numbers wrap, so go over the rest until nothing changes.
    loop {
        let before = strangers.len();
        strangers.retain(|member| {
            let parent = member.parent().and_then(|parent| keys.get(&parent));
            let related = parent.is_some_and(|parent| judged.contains(parent));
            if related {
                judged.insert(member.key());
            }
            !related
        });
        if strangers.len() == before {
            return strangers.into_iter().map(Member::key).collect();
        }
    }
}
