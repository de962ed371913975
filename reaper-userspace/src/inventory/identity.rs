//! Whether two looks saw the same thing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::fact::{Ownership, ProcessFact, Sighting};
use crate::ident::{CgroupPath, CgroupRef, ProcessKey, Tgid};

/// What must stay the same from look to look for their ages to add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    cgroup: CgroupPath,
    roots: BTreeSet<CgroupRef>,
    members: BTreeSet<ProcessKey>,
    servers: BTreeSet<ProcessKey>,
}

impl Identity {
    /// The identity of what a sighting saw.
    pub fn of(sighting: &Sighting) -> Self {
        // Ours only: foreign ones come and go, and each of their answers is a guard by itself.
        let ours = sighting.runtimes.iter().filter(|runtime| runtime.ownership == Ownership::Ours);
        let servers = ours.filter_map(|runtime| runtime.server.found());
        Self {
            cgroup: sighting.cgroup.clone(),
            roots: sighting.trees.iter().filter_map(|tree| tree.root()).map(|node| node.cgroup).collect(),
            members: sighting.members().collect(),
            servers: servers.map(|server| server.process).collect(),
        }
    }

    /// True if this look (with the facts it was made of) continues an earlier one: the same cgroups or fewer, the
    /// same processes of our containerds, and no member that came from outside.
    ///
    /// Members may fork: a child of a member seen before is no newcomer. One that a create put there is.
    pub fn continues(&self, earlier: &Self, now: &Sighting) -> bool {
        self.cgroup == earlier.cgroup
            && self.roots.is_subset(&earlier.roots)
            && self.servers == earlier.servers
            && now.processes.iter().all(|process| descends(process, &now.processes, &earlier.members))
    }
}

/// Follows parents within the present members until one was seen before.
fn descends(process: &ProcessFact, present: &[ProcessFact], earlier: &BTreeSet<ProcessKey>) -> bool {
    let mut current = process;
    // A chain cannot be longer than the number of members; a loop would be a torn read.
    for _ in 0..=present.len() {
        if earlier.contains(&current.key) {
            return true;
        }
        match current.parent.and_then(|parent| with_tgid(present, parent)) {
            Some(parent) => current = parent,
            None => return false,
        }
    }
    false
}

fn with_tgid(present: &[ProcessFact], tgid: Tgid) -> Option<&ProcessFact> {
    present.iter().find(|process| process.key.tgid == tgid)
}
