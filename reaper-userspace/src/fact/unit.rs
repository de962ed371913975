//! Scopes of containers, as systemd has them.

use serde::{Deserialize, Serialize};

use crate::ident::{CgroupPath, ContainerId, InvocationId, UnitName};

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
