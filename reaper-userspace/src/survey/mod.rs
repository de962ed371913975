//! One look at the node: asks every source and puts the answers together, container by container.
//!
//! `Survey::look() -> Look` visits every container whose cgroup exists; `look_at(container)` visits one, directly
//! before an act. Reads only, judges nothing: an answer that is missing stays visible in the
//! [`Sighting`].
//!
//! # Invariants
//! - A container that its own containerd *lists* with a task is reported as live without further questions; all
//!   others are asked about one by one, because a list leaves out what does not answer.
//! - A cgroup is looked at only because a bundle, a record or our own earlier sight names it.

mod absence;
mod binaries;
mod bundles;
mod candidates;
mod claims;
mod examine;
mod placement;
mod relatives;
mod scene;
mod units;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

pub use absence::NotStopped;
pub use scene::{Expected, Sources};

use crate::cgroupfs::{CgroupDir, CgroupfsError, Layout};
use crate::fact::{
    BundleFact, BundleSighting, MisplacedSighting, Provenance, Seen, Sighting, TaskStatus, UnitSighting,
};
use crate::ident::{CgroupRef, ContainerKey, Lookup, ProcessKey};
use crate::systemd;
use candidates::Candidate;
use scene::Scene;

/// A container that its containerd lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveContainer {
    /// The container.
    pub container: ContainerKey,
    /// Its task's status.
    pub status: TaskStatus,
    /// The containerd that lists it.
    pub address: String,
}

/// What one look found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Look {
    /// Containers with a cgroup that no containerd lists as a task, in order.
    pub sightings: Vec<Sighting>,
    /// Bundles with mounts whose containers have no cgroup and are not listed, in order.
    pub bundles: Vec<BundleSighting>,
    /// Scopes of containers that failed and stay loaded.
    pub units: Vec<UnitSighting>,
    /// Containers that live outside of their cgroups, in order.
    pub misplaced: Vec<MisplacedSighting>,
    /// Containers that are listed.
    pub live: Vec<LiveContainer>,
    /// Cgroups with provenance, to be remembered.
    pub seen: Vec<Seen>,
    /// What could not be read and belongs to no single container.
    pub problems: Vec<String>,
    /// Live shims on the node, whosever they are.
    pub shims: Vec<ProcessKey>,
    /// Whether each containerd of ours answered.
    pub containerds: BTreeMap<String, Lookup<()>>,
}

/// Knows where to look.
#[derive(Debug)]
pub struct Survey {
    sources: Sources,
    layout: Arc<Layout>,
}

// === impl Survey ===

impl Survey {
    /// Finds the hierarchies; contacts nobody.
    pub fn new(sources: Sources) -> Result<Self, CgroupfsError> {
        let layout = Arc::new(Layout::discover(&sources.cgroup_roots)?);
        Ok(Self { sources, layout })
    }

    /// The mounted hierarchies.
    pub fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    /// `Ok` if all our containerds are proven not to run; asks nobody else.
    pub fn stopped(&self) -> Result<(), NotStopped> {
        self.sources.containerd_addresses.iter().try_for_each(|address| absence::proven(address))
    }

    /// Looks at everything.
    pub async fn look(&self, remembered: &[Seen]) -> Look {
        let scene = Scene::gather(&self.sources, remembered).await;
        let candidates = candidates::all(&scene, remembered);
        let mut look = Look {
            problems: scene.problems.clone(),
            shims: scene.live_shims().map(|shim| shim.process.key).collect(),
            containerds: scene
                .servers
                .iter()
                .filter(|server| server.is_ours())
                .map(|server| (server.address(), server.health()))
                .collect(),
            ..Look::default()
        };
        let bundles: BTreeMap<&ContainerKey, &BundleFact> =
            scene.bundles.iter().map(|bundle| (&bundle.key, bundle)).collect();
        for candidate in &candidates {
            if let Some(live) = scene.listed_task(&candidate.container) {
                look.live.push(live);
                if let Some(bundle) = bundles.get(&candidate.container) {
                    let question = self.question(candidate, &candidates, &scene);
                    look.misplaced.extend(placement::misplaced(&question, bundle));
                }
                look.seen.extend(remember(candidate, self.roots_of(candidate)));
                continue;
            }
            if let Some(sighting) = self.examine(candidate, &candidates, &scene).await {
                let roots = sighting.trees.iter().filter_map(|tree| tree.root()).map(|node| node.cgroup);
                look.seen.extend(remember(candidate, roots.collect()));
                look.sightings.push(sighting);
            } else if let Some(bundle) = self.examine_bundle(candidate, &candidates, &scene).await {
                look.bundles.push(bundle);
            }
        }
        match self.failed_units(&candidates, &scene).await {
            Lookup::Found(units) => look.units = units,
            Lookup::NotFound => {}
            Lookup::Unavailable(reason) => look.problems.push(reason),
        }
        look
    }

    /// `NotFound` without systemd. Before containerd starts nobody can tell what is its.
    async fn failed_units(&self, candidates: &[Candidate], scene: &Scene) -> Lookup<Vec<UnitSighting>> {
        if self.sources.expected == Expected::Stopped {
            return Lookup::NotFound;
        }
        let failed = match systemd::failed_scopes().await {
            Lookup::Found(failed) => failed,
            Lookup::NotFound => return Lookup::NotFound,
            Lookup::Unavailable(reason) => return Lookup::Unavailable(reason),
        };
        let mut sightings: Vec<UnitSighting> = vec![];
        for unit in failed {
            let Some(candidate) = units::tied(&unit, candidates) else { continue };
            // Ages are kept by container; a second unit of the same has its turn once this one is gone.
            if sightings.iter().all(|other| other.container != candidate.container) {
                let question = self.question(&candidate, candidates, scene);
                sightings.push(units::examine(unit, &question).await);
            }
        }
        Lookup::Found(sightings)
    }

    /// Looks at the failed scope of one container, asking everybody anew. `NotFound` if there is none any more.
    pub async fn look_at_unit(&self, container: &ContainerKey, remembered: &[Seen]) -> Lookup<UnitSighting> {
        let scene = Scene::gather(&self.sources, remembered).await;
        let candidates = candidates::all(&scene, remembered);
        self.failed_units(&candidates, &scene).await.and_then(|units| {
            units
                .into_iter()
                .find(|unit| unit.container == *container)
                .map_or(Lookup::NotFound, Lookup::Found)
        })
    }

    /// Looks at one container, asking everybody anew. `NotFound` if it has no cgroup any more; `Unavailable` if
    /// nothing ties it to one, which can also be a bundle or record that could not be read.
    pub async fn look_at(&self, container: &ContainerKey, remembered: &[Seen]) -> Lookup<Sighting> {
        let scene = Scene::gather(&self.sources, remembered).await;
        let candidates = candidates::all(&scene, remembered);
        let Some(candidate) = candidates.iter().find(|candidate| candidate.container == *container) else {
            let why =
                scene.problems.first().map_or("neither bundle nor record names it any more", String::as_str);
            return Lookup::Unavailable(format!("{container} is tied to no cgroup: {why}"));
        };
        self.examine(candidate, &candidates, &scene).await.map_or(Lookup::NotFound, Lookup::Found)
    }

    /// Looks at one bundle, asking everybody anew. `NotFound` if it has no mounts any more, or a cgroup again.
    pub async fn look_at_bundle(
        &self,
        container: &ContainerKey,
        remembered: &[Seen],
    ) -> Lookup<BundleSighting> {
        let scene = Scene::gather(&self.sources, remembered).await;
        let candidates = candidates::all(&scene, remembered);
        let Some(candidate) = candidates.iter().find(|candidate| candidate.container == *container) else {
            return Lookup::NotFound;
        };
        if self.examine(candidate, &candidates, &scene).await.is_some() {
            return Lookup::NotFound;
        }
        self.examine_bundle(candidate, &candidates, &scene).await.map_or(Lookup::NotFound, Lookup::Found)
    }

    async fn examine(&self, candidate: &Candidate, all: &[Candidate], scene: &Scene) -> Option<Sighting> {
        examine::examine(&self.question(candidate, all, scene)).await
    }

    async fn examine_bundle(
        &self,
        candidate: &Candidate,
        all: &[Candidate],
        scene: &Scene,
    ) -> Option<BundleSighting> {
        bundles::examine(&self.question(candidate, all, scene)).await
    }

    fn question<'a>(
        &'a self,
        candidate: &'a Candidate,
        all: &'a [Candidate],
        scene: &'a Scene,
    ) -> examine::Question<'a> {
        examine::Question { candidate, all, scene, layout: &self.layout, sources: &self.sources }
    }

    /// Only the roots: the trees of live containers are nobody's business.
    fn roots_of(&self, candidate: &Candidate) -> Vec<CgroupRef> {
        let mounts = self.layout.hierarchies().iter();
        mounts.filter_map(|mount| mount.open(&candidate.cgroup).found().map(CgroupDir::cgroup)).collect()
    }
}

/// What to remember: the cgroups that a bundle or record named, or those that were remembered already.
fn remember(candidate: &Candidate, roots: Vec<CgroupRef>) -> Option<Seen> {
    let roots = match &candidate.provenance {
        Provenance::Seen { cgroups } => cgroups.clone(),
        Provenance::Bundle { .. } | Provenance::Record { .. } => roots,
    };
    let (container, cgroup) = (candidate.container.clone(), candidate.cgroup.clone());
    (!roots.is_empty()).then(|| Seen { container, cgroup, roots, group: candidate.group.clone() })
}
