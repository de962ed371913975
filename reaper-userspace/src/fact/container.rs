//! All facts about one container, taken together.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    BundleFact, CgroupTree, Controllers, EndedCommand, Freeze, MountFact, ProcessFact, RuncState,
    RuntimeAnswer, RuntimeProcess, ShimAnswer, Subject,
};
use crate::ident::{CgroupPath, CgroupRef, ContainerId, ContainerKey, LeakId, Lookup, ProcessKey, exact};

/// Why we know that a cgroup belongs to a container of our containerd. Strongest first; a name is not enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum Provenance {
    /// The bundle's `config.json` names it.
    Bundle {
        /// The bundle.
        #[serde(with = "exact")]
        path: PathBuf,
    },
    /// The container record's spec names it.
    Record {
        /// The containerd that has the record.
        address: String,
    },
    /// We saw it while a bundle or record named it; kept in the state file.
    Seen {
        /// The cgroups that were seen then: only these are the container's.
        cgroups: Vec<CgroupRef>,
    },
}

/// A cgroup that was seen while a bundle or record named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The container.
    pub container: ContainerKey,
    /// The path that was named.
    pub cgroup: CgroupPath,
    /// The cgroups found there, one a hierarchy.
    pub roots: Vec<CgroupRef>,
    /// The group whose shim serves it, where known.
    pub group: Option<ContainerId>,
}

/// One look at one container whose cgroup exists in at least one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The container.
    pub container: ContainerKey,
    /// How we know the cgroup is its.
    pub provenance: Provenance,
    /// Its cgroup's path, the same in every hierarchy.
    pub cgroup: CgroupPath,
    /// One tree a hierarchy in which the path exists; never empty.
    pub trees: Vec<CgroupTree>,
    /// Hierarchies that could not be read at all.
    pub unreadable: Vec<String>,
    /// Members of all trees, each once, in order of tgid.
    pub processes: Vec<ProcessFact>,
    /// Members that still execute the runtime itself (`runc init`), known by the file they execute, and not yet the
    /// container's own program.
    pub runtime_inits: Vec<ProcessKey>,
    /// The bundle, if there is one.
    pub bundle: Lookup<BundleFact>,
    /// The runtime's own state.
    pub runc_state: Lookup<RuncState>,
    /// Every containerd's answer, ours and foreign. Empty only if none is known, which proves nothing.
    pub runtimes: Vec<RuntimeAnswer>,
    /// Answers of the live shims that may serve this container.
    pub shims: Vec<ShimAnswer>,
    /// Runtime commands in flight that name this container, or that are ancestors of a member.
    pub in_flight: Vec<RuntimeProcess>,
    /// Ancestors of members that are live shims, engines (`conmon`) or runtimes, and so own the members.
    pub supervisors: Vec<RuntimeProcess>,
    /// Living ancestors of members that nothing explains: outside of the tree, neither shim nor runtime command, and
    /// not among those who adopt orphans (PID 1, and the processes that our containerds descend from).
    #[serde(default)]
    pub owners: Vec<ProcessFact>,
    /// Members that must never be killed: ourselves, PID 1, a containerd, a kubelet, a shim.
    pub protected_members: Vec<ProcessFact>,
    /// The cgroup's tree holds the cgroup that this very program runs in.
    pub holds_self: Lookup<bool>,
    /// Another known container (by bundle, record or earlier sight) whose cgroup is this one, or above or below it.
    pub enclosed_by: Option<ContainerKey>,
    /// Mounts at or below the bundle's rootfs, outermost first.
    pub mounts: Lookup<Vec<MountFact>>,
    /// The last `create` for it that the probes saw fail, if they saw one. Says why, never whether: nothing is
    /// decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_create: Option<EndedCommand>,
}

// === impl Sighting ===

impl Sighting {
    /// Whether any task is in any tree; an unanswered question outweighs a "no".
    pub fn populated(&self) -> Lookup<bool> {
        let mut answer = Lookup::Found(false);
        for tree in &self.trees {
            match &tree.populated {
                Lookup::Found(true) => return Lookup::Found(true),
                Lookup::Found(false) | Lookup::NotFound => {}
                Lookup::Unavailable(reason) => answer = Lookup::Unavailable(reason.clone()),
            }
        }
        answer
    }

    /// Incarnations of all members.
    pub fn members(&self) -> impl Iterator<Item = ProcessKey> + '_ {
        self.processes.iter().map(|process| process.key)
    }

    /// Whether members are held by a freezer.
    pub fn is_frozen(&self) -> bool {
        let frozen = |freeze: &Lookup<Freeze>| *freeze == Lookup::Found(Freeze::Frozen);
        !self.processes.is_empty()
            && self.trees.iter().flat_map(|tree| &tree.nodes).any(|node| frozen(&node.freeze))
    }

    /// The tree of the hierarchy that processes are killed through: the freezer's on v1 and hybrid, else v2's.
    pub fn kill_tree(&self) -> Option<&CgroupTree> {
        let with = |wanted| self.trees.iter().find(|tree| tree.controllers == wanted);
        with(Controllers::Freezer).or_else(|| with(Controllers::Unified))
    }

    /// Members listed in some hierarchy but neither in the freezer's nor in v2's tree.
    pub fn stray_members(&self) -> impl Iterator<Item = &ProcessFact> {
        self.processes.iter().filter(|process| {
            !self
                .trees
                .iter()
                .any(|tree| tree.controllers != Controllers::Other && tree.lists(process.key.tgid))
        })
    }
}

impl Subject for Sighting {
    fn container(&self) -> &ContainerKey {
        &self.container
    }

    fn id(&self) -> LeakId {
        LeakId::of(&self.container, &self.cgroup)
    }

    fn place(&self) -> String {
        self.cgroup.to_string()
    }

    fn runtimes(&self) -> &[RuntimeAnswer] {
        &self.runtimes
    }

    fn shims(&self) -> &[ShimAnswer] {
        &self.shims
    }

    fn processes(&self) -> &[ProcessFact] {
        &self.processes
    }

    fn roots(&self) -> Vec<CgroupRef> {
        self.trees.iter().filter_map(|tree| tree.root()).map(|node| node.cgroup).collect()
    }

    fn populated(&self) -> Lookup<bool> {
        Self::populated(self)
    }

    fn frozen(&self) -> Lookup<bool> {
        let mut answer = Lookup::Found(false);
        for node in self.trees.iter().flat_map(|tree| &tree.nodes) {
            match &node.freeze {
                Lookup::Found(Freeze::Frozen | Freeze::Freezing) => return Lookup::Found(true),
                Lookup::Found(Freeze::Thawed | Freeze::None) => {}
                Lookup::NotFound => answer = Lookup::Unavailable("no freezer's state was read".to_owned()),
                Lookup::Unavailable(reason) => answer = Lookup::Unavailable(reason.clone()),
            }
        }
        answer
    }
}
