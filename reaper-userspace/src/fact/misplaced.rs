//! A container that runs outside of the cgroup that its bundle names.

use std::path::PathBuf;

use serde::Serialize;

use super::{RuntimeAnswer, ShimAnswer, Subject};
use crate::ident::{CgroupPath, ContainerKey, LeakId, ProcessKey, exact};

/// Where the init of a misplaced container is in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The hierarchy, as it is called in records.
    pub hierarchy: String,
    /// The cgroup.
    pub path: CgroupPath,
    /// Whether that is the container's own, or below it.
    pub own: bool,
}

/// One look at a misplaced container: it lives, and is nobody's to reap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MisplacedSighting {
    /// The container.
    pub container: ContainerKey,
    /// Its bundle.
    #[serde(with = "exact")]
    pub bundle: PathBuf,
    /// The cgroup that the bundle names.
    pub named: CgroupPath,
    /// Its init, by incarnation.
    pub init: ProcessKey,
    /// Where that is, in every hierarchy.
    pub placements: Vec<Placement>,
}

// === impl MisplacedSighting ===

impl MisplacedSighting {
    /// The hierarchies that have it elsewhere, and where.
    pub fn elsewhere(&self) -> impl Iterator<Item = &Placement> {
        self.placements.iter().filter(|placement| !placement.own)
    }
}

impl Subject for MisplacedSighting {
    fn container(&self) -> &ContainerKey {
        &self.container
    }

    fn id(&self) -> LeakId {
        LeakId::of_misplaced(&self.container, &self.named)
    }

    fn place(&self) -> String {
        self.elsewhere().next().map_or_else(String::new, |placement| placement.path.to_string())
    }

    /// Nobody was asked: that it lives is its init's word.
    fn runtimes(&self) -> &[RuntimeAnswer] {
        &[]
    }

    fn shims(&self) -> &[ShimAnswer] {
        &[]
    }
}
