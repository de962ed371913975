//! All facts about one bundle whose cgroup is gone, taken together.

use serde::Serialize;

use super::{BundleFact, FileId, MountFact, RuncState, RuntimeAnswer, RuntimeProcess, ShimAnswer, Subject};
use crate::ident::{ContainerKey, LeakId, Lookup};

/// One look at a bundle that still has mounts although its container has no cgroup in any hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BundleSighting {
    /// The bundle.
    pub bundle: BundleFact,
    /// Its directory: containerd makes a new one for a new container of the same name.
    pub directory: Lookup<FileId>,
    /// Mounts at or below its rootfs, outermost first; never an empty list.
    pub mounts: Lookup<Vec<MountFact>>,
    /// What could not be read at all.
    pub unreadable: Vec<String>,
    /// The runtime's own state.
    pub runc_state: Lookup<RuncState>,
    /// Every containerd's answer, ours and foreign.
    pub runtimes: Vec<RuntimeAnswer>,
    /// Answers of the live shims that may serve this container.
    pub shims: Vec<ShimAnswer>,
    /// Whether anybody listens at the socket that the bundle names.
    pub listener: Lookup<()>,
    /// Runtime commands in flight that name this container.
    pub in_flight: Vec<RuntimeProcess>,
}

// === impl BundleSighting ===

impl Subject for BundleSighting {
    fn container(&self) -> &ContainerKey {
        &self.bundle.key
    }

    fn id(&self) -> LeakId {
        LeakId::of_bundle(&self.bundle.key, &self.bundle.path)
    }

    fn place(&self) -> String {
        self.bundle.path.display().to_string()
    }

    fn runtimes(&self) -> &[RuntimeAnswer] {
        &self.runtimes
    }

    fn shims(&self) -> &[ShimAnswer] {
        &self.shims
    }
}
