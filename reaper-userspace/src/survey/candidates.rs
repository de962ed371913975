//! Which containers to look at: those that a bundle, a record or our memory ties to a cgroup.

use std::collections::BTreeMap;

use super::scene::Scene;
use crate::fact::{Provenance, Seen};
use crate::ident::{CgroupPath, ContainerId, ContainerKey, Lookup};

/// A container and the cgroup that it is tied to.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) container: ContainerKey,
    pub(super) cgroup: CgroupPath,
    pub(super) provenance: Provenance,
    pub(super) group: Option<ContainerId>,
}

/// Every candidate once, by its strongest provenance.
pub(super) fn all(scene: &Scene, remembered: &[Seen]) -> Vec<Candidate> {
    let mut candidates = BTreeMap::new();
    // Strongest last: it replaces what a weaker source said.
    for seen in remembered {
        candidates.insert(seen.container.clone(), of_memory(seen));
    }
    for server in scene.servers.iter().filter(|server| server.is_ours()) {
        for record in server.records.found().into_iter().flatten() {
            if let Lookup::Found(cgroup) = &record.cgroup {
                let provenance = Provenance::Record { address: server.address() };
                let group = Some(record.group.clone());
                let candidate =
                    Candidate { container: record.key.clone(), cgroup: cgroup.clone(), provenance, group };
                candidates.insert(record.key.clone(), candidate);
            }
        }
    }
    for bundle in &scene.bundles {
        if let Lookup::Found(cgroup) = &bundle.cgroup {
            let group = bundle.group.found().cloned();
            let provenance = Provenance::Bundle { path: bundle.path.clone() };
            let candidate =
                Candidate { container: bundle.key.clone(), cgroup: cgroup.clone(), provenance, group };
            candidates.insert(bundle.key.clone(), candidate);
        }
    }
    candidates.into_values().collect()
}

fn of_memory(seen: &Seen) -> Candidate {
    Candidate {
        container: seen.container.clone(),
        cgroup: seen.cgroup.clone(),
        provenance: Provenance::Seen { cgroups: seen.roots.clone() },
        group: seen.group.clone(),
    }
}

/// Another container whose cgroup is this one, or above or below it.
pub(super) fn enclosing<'a>(candidate: &Candidate, all: &'a [Candidate]) -> Option<&'a Candidate> {
    all.iter().find(|other| {
        other.container != candidate.container
            && (other.cgroup.contains(&candidate.cgroup) || candidate.cgroup.contains(&other.cgroup))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::Namespace;

    fn candidate(id: &str, cgroup: &str) -> Candidate {
        let container = ContainerKey {
            namespace: Namespace::try_from("ns").unwrap(),
            id: ContainerId::try_from(id).unwrap(),
        };
        let cgroup = CgroupPath::try_from(cgroup).unwrap();
        Candidate { container, cgroup, provenance: Provenance::Seen { cgroups: vec![] }, group: None }
    }

    #[test]
    fn another_container_at_above_or_below_is_found_and_a_neighbour_is_not() {
        let own = candidate("own", "/a/b");
        for (other, found) in
            [("/a/b", true), ("/a", true), ("/a/b/c", true), ("/a/c", false), ("/a/bc", false)]
        {
            let all = [own.clone(), candidate("other", other)];
            assert_eq!(enclosing(&own, &all).is_some(), found, "{other}");
        }
    }
}
