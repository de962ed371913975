//! What the operator allows: modes, graces, protected names, budgets.
//!
//! Plain values, validated where they are read (`cli`). Nothing here looks at the node.

mod protect;
mod storm;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ident::{ContainerId, Namespace};
use crate::leak::LeakKind;

pub use protect::{PathPattern, PatternError};
pub use storm::{Budget, Census, Weather};

/// Whether an act is carried out or only described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Full verdicts and plans, no act.
    #[default]
    Observe,
    /// Confirmed leaks are reaped.
    Enforce,
}

/// The operator's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Mode for every kind.
    pub mode: Mode,
    /// Kinds that stay in observe even when `mode` is enforce.
    pub observe_only: BTreeSet<LeakKind>,
    /// How long a leak must have been continuously leak-shaped, and its containerd serving.
    pub grace: Duration,
    /// Least time between the two looks that confirm.
    pub look_gap: Duration,
    /// Ids that are never touched.
    pub protect_ids: BTreeSet<ContainerId>,
    /// Namespaces that are never touched.
    pub protect_namespaces: BTreeSet<Namespace>,
    /// Cgroups that are never touched, nor what lies inside of them.
    #[serde(default)]
    pub protect_paths: Vec<PathPattern>,
    /// Limits.
    pub budget: Budget,
}

// === impl Policy ===

impl Policy {
    /// Grace unless told otherwise: longer than any step of a runtime's own delete (`shim delete` 5 s, IO drain
    /// 10 s, unmounts of 20 to 30 s seen in the field).
    pub const DEFAULT_GRACE: Duration = Duration::from_mins(1);

    /// The mode that holds for a kind.
    pub fn mode_of(&self, kind: LeakKind) -> Mode {
        if self.observe_only.contains(&kind) { Mode::Observe } else { self.mode }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            observe_only: BTreeSet::new(),
            grace: Self::DEFAULT_GRACE,
            look_gap: Duration::from_millis(200),
            protect_ids: BTreeSet::new(),
            protect_namespaces: BTreeSet::new(),
            protect_paths: vec![],
            budget: Budget::default(),
        }
    }
}
