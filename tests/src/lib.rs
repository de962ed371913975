//! Fixtures for tests and the demo: a private view of the machine, a private containerd, live containers, and
//! leaks that are made by real crashes.
//!
//! Light on purpose: no dependency on the product, which is only run as a program ([`Reaper`]).
//!
//! # Invariants
//! - Everything a [`Containerd`] makes carries the name of its namespace, `reaper-` and a random part, and its
//!   processes carry the path of the [`Node`]: parallel tests and other containerds on the machine never meet.
//! - Dropping a [`Containerd`] and its [`Node`] removes all of it, after a panic too; [`Traces`] is the proof.
//! - Signals go through a pidfd whose process was checked after it was opened.
#![expect(
    clippy::disallowed_methods,
    reason = "fixtures make real cgroups, mounts and processes, end them, and read the clock"
)]

mod bystander;
mod cgroup;
mod command;
mod containerd;
mod flight;
mod image;
mod leak;
mod live;
mod node;
mod process;
mod reaper;
mod runc;
mod traces;
mod verbs;
mod wait;
pub mod whole;

pub use bystander::{Bystander, Watch};
pub use cgroup::{Cgroups, Inventory, MountedHierarchy};
pub use command::{Finished, run};
pub use containerd::{Containerd, TaskState};
pub use flight::CreateInFlight;
pub use leak::{Crash, Leak, LeakKind};
pub use live::{Live, Shape};
pub use node::{CgroupView, Node};
pub use process::{Incarnation, processes_naming};
pub use reaper::{Daemon, DaemonOptions, Mode, Reaper, read_audit};
pub use traces::Traces;
pub use verbs::{Item, Scan};
pub use wait::{wait_for, wait_until};

/// For destructors, which cannot return what went wrong.
fn report(text: &str) {
    use std::io::Write as _;
    // Nobody is left to be told when standard error itself fails.
    drop(writeln!(std::io::stderr(), "fixture: {text}"));
}
