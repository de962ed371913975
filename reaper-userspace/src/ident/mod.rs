//! Names that cannot be confused with each other.
//!
//! A path, a PID and an id are not identities by themselves: each of these types says what it identifies, and
//! those that can be wrong (a path from a `config.json`, an id from an argv) have one door, `TryFrom`.
//!
//! # Invariants
//! - A [`CgroupPath`] never leaves its hierarchy's root: it is absolute and has no empty, `.` or `..` component.
//! - A [`ContainerId`] or [`Namespace`] can be one component of a file name.
//! - [`Lookup::NotFound`] is an explicit answer of the source; an error is [`Lookup::Unavailable`].

mod cgroup;
mod container;
pub mod exact;
mod leak;
mod lookup;
mod process;
mod unit;

pub use cgroup::{CgroupId, CgroupPath, CgroupPathError, CgroupRef, Hierarchy};
pub use container::{ContainerId, ContainerKey, NameError, Namespace};
pub use leak::LeakId;
pub use lookup::Lookup;
pub use process::{ProcessKey, StartTicks, Tgid};
pub use unit::{InvocationId, UnitName, UnitNameError};
