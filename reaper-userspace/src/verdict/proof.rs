//! The proof that something leaked.

use serde::Serialize;

use super::Evidence;
use crate::fact::{Sighting, Subject};
use crate::ident::{CgroupRef, ProcessKey};
use crate::leak::{Cause, LeakKind};

/// Proof that one subject leaked: a container's cgroup unless the type says otherwise. Holding one proves that two looks apart found no veto; it does not
/// prove that this still holds, so whoever acts asks for a second one directly before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakProof<S = Sighting> {
    kind: LeakKind,
    cause: Cause,
    sighting: S,
    evidence: Vec<Evidence>,
}

impl<S> LeakProof<S> {
    /// Private to `verdict`: the only place where proofs are made.
    pub(super) const fn new(kind: LeakKind, cause: Cause, sighting: S, evidence: Vec<Evidence>) -> Self {
        Self { kind, cause, sighting, evidence }
    }

    /// What leaked.
    pub const fn kind(&self) -> LeakKind {
        self.kind
    }

    /// Why, as far as can be told.
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// The facts it rests on.
    pub const fn sighting(&self) -> &S {
        &self.sighting
    }

    /// The evidence in words.
    pub fn evidence(&self) -> &[Evidence] {
        &self.evidence
    }
}

impl<S: Subject> LeakProof<S> {
    /// The members when it was proven.
    pub fn members(&self) -> impl Iterator<Item = ProcessKey> + '_ {
        self.sighting.members()
    }
}

impl LeakProof {
    /// The roots of the leaked trees.
    pub fn roots(&self) -> impl Iterator<Item = CgroupRef> + '_ {
        self.sighting.trees.iter().filter_map(|tree| tree.root()).map(|node| node.cgroup)
    }
}
