//! Recorded looks: all that verdicts were made of, so that somebody else can make them again.
//!
//! A trace is a file of JSON lines, one a look, written by [`Recorder`] and judged anew by [`Replay`]. It is made for
//! bug reports, so it holds what judgement needs and no more: ids, paths, process numbers, names and states, and the
//! sources' answers. Of argument vectors it keeps the program's name and, for a runtime's command, the verb and the
//! container's id; everything else in them may be a secret and is left out. Environments are never read.
//!
//! # Invariants
//! - What is left out changes no verdict (`what_a_trace_leaves_out_changes_no_verdict`).
//! - A look comes back as it was written, names that are no UTF-8 included (`a_look_comes_back_exactly`).
//! - A replay is judged by the same code as the look it replays, with the same time, policy and inventory
//!   (`a_replay_gives_the_verdicts_of_the_looks`).

mod read;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use read::{ReadTraceError, Reader};
pub(super) use record::Setting;
pub use record::{RecordError, Recorder};
pub use replay::{Replay, Replayed};

use crate::fact::{ProcessFact, RuntimeProcess, RuntimeRole, Sighting};
use crate::ident::ContainerId;
use crate::inventory::Inventory;
use crate::policy::Policy;
use crate::time::BootTime;
use crate::verdict::Freshness;

/// Version of the format, in the first field of every line.
const VERSION: u32 = 1;
/// Longest line that is written or read: some thousand leaked containers.
const LINE_LIMIT: u64 = 16 << 20;

/// What a look looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Everything: what is not in the look has no cgroup any more.
    Node,
    /// One container, directly before an act.
    Recheck,
}

/// One look, as a line has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedLook<'a> {
    /// Version of the format.
    trace: u32,
    /// The moment of judging.
    pub at: BootTime,
    /// What was looked at.
    pub scope: Scope,
    /// Whether events were missed.
    pub freshness: Cow<'a, Freshness>,
    /// The operator's policy.
    pub policy: Cow<'a, Policy>,
    /// What was known before the first look of a recording; the next recording in the same file has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<Cow<'a, Inventory>>,
    /// The facts, reduced.
    pub sightings: Cow<'a, [Sighting]>,
}

/// The facts without what may be a secret.
fn reduced(sighting: &Sighting) -> Sighting {
    let mut kept = sighting.clone();
    let id = &sighting.container.id;
    let programs = kept.processes.iter_mut().chain(&mut kept.protected_members).chain(&mut kept.owners);
    for process in programs {
        keep_program(process);
    }
    for process in kept.in_flight.iter_mut().chain(&mut kept.supervisors) {
        keep_command(process, id);
    }
    kept
}

/// The file name of the first word; up to a blank, as some programs write a whole line there.
fn keep_program(process: &mut ProcessFact) {
    process.argv.truncate(1);
    for word in &mut process.argv {
        let program = word.rsplit('/').next().unwrap_or_default();
        *word = program.split(char::is_whitespace).next().unwrap_or_default().to_owned();
    }
}

/// Besides: the verb, and the container's id where it is named.
fn keep_command(process: &mut RuntimeProcess, id: &ContainerId) {
    let told = match &process.role {
        RuntimeRole::Command { verb } => {
            let words = process.process.argv.iter().skip(1);
            words.filter(|word| *word == verb || *word == id.as_str()).cloned().collect()
        }
        RuntimeRole::Shim { .. } => vec![],
    };
    keep_program(&mut process.process);
    process.process.argv.extend(told);
}
