//! Scopes of containers, as systemd has them.

use serde::{Deserialize, Serialize};

use super::{RuntimeAnswer, RuntimeProcess, ShimAnswer, Subject};
use crate::ident::{CgroupPath, ContainerId, ContainerKey, InvocationId, LeakId, Lookup, UnitName};

/// What a unit is doing (`src/basic/unit-def.c:unit_active_state_table`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActiveState {
    /// Runs, or is about to run or to stop.
    Busy,
    /// Does nothing; systemd forgets it unless somebody refers to it.
    Inactive,
    /// Ended badly; stays loaded until somebody resets it.
    Failed,
}

/// A container's scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitFact {
    /// Its name.
    pub name: UnitName,
    /// The container that the name claims.
    pub container: ContainerId,
    /// What it is doing.
    pub state: ActiveState,
    /// Why it failed, in systemd's words: `timeout`, `oom-kill`, `resources`; `success` otherwise.
    pub result: String,
    /// Which run of it this is.
    pub invocation: InvocationId,
    /// Where its cgroup is or was; systemd forgets it for a unit whose cgroup it has removed.
    pub cgroup: Option<CgroupPath>,
    /// A job (start, stop) is queued for it.
    pub has_job: bool,
}

/// One look at a container's scope that failed and stays loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitSighting {
    /// The unit.
    pub unit: UnitFact,
    /// The container whose record or bundle names the unit's cgroup; else the name's id in the namespace that such
    /// names are given in.
    pub container: ContainerKey,
    /// Whether any task is in its cgroup, or in the one that the container is tied to, in any hierarchy.
    pub populated: Lookup<bool>,
    /// What could not be read at all.
    pub unreadable: Vec<String>,
    /// Every containerd's answer, ours and foreign.
    pub runtimes: Vec<RuntimeAnswer>,
    /// Answers of the live shims that may serve this container.
    pub shims: Vec<ShimAnswer>,
    /// The same id in another namespace that has a task or a shim.
    pub namesakes: Vec<ContainerKey>,
    /// Runtime commands in flight that name this container.
    pub in_flight: Vec<RuntimeProcess>,
}

// === impl UnitSighting ===

impl Subject for UnitSighting {
    fn container(&self) -> &ContainerKey {
        &self.container
    }

    fn id(&self) -> LeakId {
        LeakId::of_unit(&self.container, &self.unit.name)
    }

    fn place(&self) -> String {
        self.unit.name.to_string()
    }

    fn runtimes(&self) -> &[RuntimeAnswer] {
        &self.runtimes
    }

    fn shims(&self) -> &[ShimAnswer] {
        &self.shims
    }
}
