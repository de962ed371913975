//! What a leak is about: a container's cgroup, a bundle.
//!
//! The few questions that can be asked of every kind of subject, so that ages, verdicts, plans and records are made by
//! the same code for all of them.

use super::{ProcessFact, RuntimeAnswer, ShimAnswer};
use crate::ident::{CgroupRef, ContainerKey, LeakId, Lookup, ProcessKey};

/// All facts about one thing that may have leaked, taken together.
pub trait Subject: Clone + Send + 'static {
    /// The container that it belongs to.
    fn container(&self) -> &ContainerKey;

    /// Its short name.
    fn id(&self) -> LeakId;

    /// Where it is, for people.
    fn place(&self) -> String;

    /// Every containerd's answer about the container.
    fn runtimes(&self) -> &[RuntimeAnswer];

    /// The answers of the live shims that may serve the container.
    fn shims(&self) -> &[ShimAnswer];

    /// The processes that would end with it.
    fn processes(&self) -> &[ProcessFact] {
        &[]
    }

    /// The cgroups that would be removed, one a hierarchy.
    fn roots(&self) -> Vec<CgroupRef> {
        vec![]
    }

    /// Whether any task is in one of these cgroups; an unanswered question outweighs a "no".
    fn populated(&self) -> Lookup<bool> {
        Lookup::Found(false)
    }

    /// Whether a freezer holds tasks in one of them, or is about to.
    fn frozen(&self) -> Lookup<bool> {
        Lookup::Found(false)
    }

    /// Incarnations of the processes.
    fn members(&self) -> impl Iterator<Item = ProcessKey> + '_ {
        self.processes().iter().map(|process| process.key)
    }
}
