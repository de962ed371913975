//! What one look at the node returned: plain data, made by the readers of layer 2, judged by layer 1.
//!
//! A fact carries no opinion. Each question that can fail is a [`Lookup`](crate::ident::Lookup), so that a
//! failed question stays visible up to the verdict.

mod bundle;
mod cgroup;
mod container;
mod misplaced;
mod process;
mod runtime;
#[cfg(test)]
pub(crate) mod sample;
mod subject;
mod unit;

pub use bundle::BundleSighting;
pub use cgroup::{CgroupNode, CgroupTree, Controllers, Freeze};
pub use container::{Provenance, Seen, Sighting};
pub use misplaced::{MisplacedSighting, Placement};
pub use process::{FileId, ProcessFact, ProcessState, RuntimeProcess, RuntimeRole};
pub use runtime::{
    BundleFact, ContainerRecord, CreateProgress, EndedCommand, Invocation, MountFact, Ownership, ProcessEnd,
    RuncState, RuntimeAnswer, RuntimeChoice, ServerFact, ShimAnswer, TaskStatus,
};
pub use subject::Subject;
pub use unit::{ActiveState, UnitFact, UnitSighting};
