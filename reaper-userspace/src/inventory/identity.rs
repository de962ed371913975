//! Whether two looks saw the same thing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Tracked;
use crate::fact::{Ownership, ProcessFact, RuntimeAnswer, Sighting};
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
        Self {
            cgroup: sighting.cgroup.clone(),
            roots: sighting.trees.iter().filter_map(|tree| tree.root()).map(|node| node.cgroup).collect(),
            members: sighting.members().collect(),
            servers: servers(&sighting.runtimes),
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
            && descend(&now.processes, &earlier.members)
    }
}

impl Tracked for Sighting {
    type Identity = Identity;

    fn identity(&self) -> Identity {
        Identity::of(self)
    }

    fn continues(&self, earlier: &Identity) -> bool {
        Identity::of(self).continues(earlier, self)
    }
}

/// The processes of our containerds: foreign ones come and go, and each of their answers is a guard by itself.
pub(super) fn servers(runtimes: &[RuntimeAnswer]) -> BTreeSet<ProcessKey> {
    let ours = runtimes.iter().filter(|runtime| runtime.ownership == Ownership::Ours);
    ours.filter_map(|runtime| runtime.server.found()).map(|server| server.process).collect()
}

/// Whether every present member was seen before or leads, by parents within the present members, to one that was.
fn descend(present: &[ProcessFact], earlier: &BTreeSet<ProcessKey>) -> bool {
    let by_number: BTreeMap<Tgid, &ProcessFact> =
        present.iter().map(|process| (process.key.tgid, process)).collect();
    let mut known = earlier.clone();
    present.iter().all(|process| {
        let (mut line, mut next) = (BTreeSet::new(), Some(process));
        while let Some(current) = next {
            if known.contains(&current.key) {
                // Nobody's line is followed twice.
                known.extend(line);
                return true;
            }
            // A loop would be a torn read.
            if !line.insert(current.key) {
                return false;
            }
            next = current.parent.and_then(|parent| by_number.get(&parent).copied());
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::sample;

    fn process(tgid: i64, parent: i64) -> ProcessFact {
        ProcessFact { key: sample::key(tgid, 1), parent: Tgid::new(parent), ..sample::workload() }
    }

    /// Takes minutes where each member's line is followed to its end.
    #[test]
    fn a_long_line_of_forks_descends_and_is_followed_once() {
        let line: Vec<ProcessFact> = (10..20_010).map(|tgid| process(tgid, tgid - 1)).collect();
        let eldest = BTreeSet::from([line[0].key]);
        assert!(descend(&line, &eldest));
        assert!(!descend(&line, &BTreeSet::new()));
    }

    #[test]
    fn who_was_adopted_from_elsewhere_or_is_its_own_ancestor_descends_from_none() {
        let earlier = BTreeSet::from([process(10, 1).key]);
        assert!(!descend(&[process(10, 1), process(11, 1)], &earlier));
        assert!(!descend(&[process(11, 12), process(12, 11)], &earlier));
        assert!(descend(&[], &earlier));
    }
}
