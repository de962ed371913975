//! Cgroups as read from a hierarchy.

use serde::{Deserialize, Serialize};

use crate::ident::{CgroupPath, CgroupRef, Lookup, ProcessKey, Tgid};

/// What a hierarchy is for, which decides how a tree in it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controllers {
    /// cgroup v2: has `cgroup.events`, and `cgroup.kill` since Linux 5.14.
    Unified,
    /// The v1 hierarchy that has the freezer.
    Freezer,
    /// Any other v1 hierarchy, named ones such as `name=systemd` included.
    Other,
}

/// State of a cgroup's freezer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freeze {
    /// Tasks run.
    Thawed,
    /// Asked to freeze, some task has not stopped yet.
    Freezing,
    /// All tasks stopped. An *empty* v2 cgroup whose `cgroup.freeze` is 1 says so too.
    Frozen,
    /// The hierarchy has no freezer.
    None,
}

/// One cgroup of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupNode {
    /// Its identity.
    pub cgroup: CgroupRef,
    /// Where it was found.
    pub path: CgroupPath,
    /// Thread groups listed in `cgroup.procs`, by incarnation, in order, without duplicates; none for threaded cgroups
    /// below the root, whose processes the domain above lists. `Unavailable` if the tree's root is threaded itself
    /// (EOPNOTSUPP), and when a member is outside the reader's PID namespace (listed as 0).
    pub members: Lookup<Vec<ProcessKey>>,
    /// Freezer state of this cgroup.
    pub freeze: Lookup<Freeze>,
}

/// A cgroup and everything below it, in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupTree {
    /// What the hierarchy is for.
    pub controllers: Controllers,
    /// The hierarchy's name as in `/proc/PID/cgroup`: `freezer`, `cpu,cpuacct`, `name=systemd`; empty for v2.
    pub hierarchy_name: String,
    /// Parents before children; the first is the tree's root. Never empty.
    pub nodes: Vec<CgroupNode>,
    /// Whether any task, threads included, is in the tree. v2: `populated` of the root's `cgroup.events`.
    /// v1: whether `cgroup.procs` or `tasks` of any node lists one.
    pub populated: Lookup<bool>,
}

// === impl CgroupTree ===

impl CgroupTree {
    /// The tree's root.
    pub fn root(&self) -> Option<&CgroupNode> {
        self.nodes.first()
    }

    /// Members of all nodes whose list could be read.
    pub fn members(&self) -> impl Iterator<Item = ProcessKey> + '_ {
        self.nodes.iter().filter_map(|node| node.members.found()).flatten().copied()
    }

    /// True if this process number is listed anywhere in the tree.
    pub fn lists(&self, tgid: Tgid) -> bool {
        self.members().any(|member| member.tgid == tgid)
    }

    /// The first question about this tree that got no answer.
    pub fn unanswered(&self) -> Option<&String> {
        self.populated.unavailable().or_else(|| {
            self.nodes
                .iter()
                .find_map(|node| node.members.unavailable().or_else(|| node.freeze.unavailable()))
        })
    }
}
