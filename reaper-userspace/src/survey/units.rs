//! All questions about scopes of containers that failed and stay loaded.

use super::candidates::Candidate;
use super::examine::{self, Question};
use super::relatives;
use super::scene::Scene;
use crate::cgroupfs::Layout;
use crate::fact::{Provenance, UnitFact, UnitSighting};
use crate::ident::{CgroupPath, ContainerKey, Lookup, Namespace};
use crate::procfs;

/// In which namespace a scope of this name belongs to a container, where nothing else tells.
const NAMESPACES: [(&str, &str); 2] = [("cri-containerd-", "k8s.io"), ("docker-", "moby")];
const OTHERS: &str = "default";

/// Asks everybody about the container of one failed scope. `question` is about whom [`tied`] found.
pub(super) async fn examine(unit: UnitFact, question: &Question<'_>) -> UnitSighting {
    let Question { candidate, scene, layout, .. } = *question;
    let container = candidate.container.clone();
    let mut unreadable: Vec<String> = scene.blind().cloned().collect();
    unreadable.extend(layout.warnings().iter().map(ToString::to_string));
    UnitSighting {
        populated: populated(&unit, candidate, layout),
        unreadable,
        runtimes: examine::ask_servers(question).await,
        // No record may be left that tells the group: every shim of the namespace is asked.
        shims: examine::ask_shims(question, false).await,
        namesakes: namesakes(&container, scene),
        in_flight: relatives::of(&container, &[], scene).in_flight,
        container,
        unit,
    }
}

/// The container that a record, a bundle or our memory ties to the unit's cgroup; else by the name alone, which is
/// enough to ask about it.
pub(super) fn tied(unit: &UnitFact, candidates: &[Candidate]) -> Option<Candidate> {
    let is_its =
        |candidate: &&Candidate| candidate.cgroup.name().is_some_and(|name| *name == *unit.name.as_str());
    candidates.iter().find(is_its).cloned().or_else(|| by_name(unit))
}

fn by_name(unit: &UnitFact) -> Option<Candidate> {
    let known = NAMESPACES.iter().find(|(prefix, _)| unit.name.as_str().starts_with(prefix));
    let namespace = Namespace::try_from(known.map_or(OTHERS, |(_, namespace)| *namespace)).ok()?;
    let cgroup = unit.cgroup.clone();
    let cgroup = cgroup.or_else(|| CgroupPath::try_from(format!("/{}", unit.name).as_str()).ok())?;
    let container = ContainerKey { namespace, id: unit.container.clone() };
    Some(Candidate { container, cgroup, provenance: Provenance::Seen { cgroups: vec![] }, group: None })
}

/// An unanswered question outweighs a "no".
fn populated(unit: &UnitFact, candidate: &Candidate, layout: &Layout) -> Lookup<bool> {
    let mut answer = Lookup::Found(false);
    let own = [Some(&candidate.cgroup), unit.cgroup.as_ref()];
    for path in own.into_iter().flatten() {
        for mount in layout.hierarchies() {
            match mount.tree(path, &procfs::start_of).and_then(|tree| tree.populated) {
                Lookup::Found(true) => return Lookup::Found(true),
                Lookup::Found(false) | Lookup::NotFound => {}
                unavailable @ Lookup::Unavailable(_) => answer = unavailable,
            }
        }
    }
    answer
}

/// Whoever has the id in another namespace: the name of the unit does not tell which it is for.
fn namesakes(container: &ContainerKey, scene: &Scene) -> Vec<ContainerKey> {
    let shims = scene
        .live_shims()
        .map(|shim| ContainerKey { namespace: shim.namespace.clone(), id: shim.id.clone() });
    let mut found: Vec<ContainerKey> = scene
        .tasks()
        .cloned()
        .chain(shims)
        .filter(|other| other.id == container.id && other.namespace != container.namespace)
        .collect();
    found.sort();
    found.dedup();
    found
}
