//! The durable record of what was found and done: JSON Lines, one object a line, each line chained to the one
//! before it by SHA-256.
//!
//! [`Journal`] appends; an act is framed by [`Journal::intent`], durable before it returns, and
//! [`Journal::outcome`], which consumes the token that the intent gave. [`verify()`] reads a file and finds what is
//! missing or altered. This module records; it knows neither verdicts nor steps beyond their words, and it is not
//! the debug log.
//!
//! # Invariants
//! - A line is written with one `write(2)` and never continued: after a failure the journal refuses everything
//!   (`a_full_disk_poisons`), and a torn last line is moved aside at the next opening.
//! - No two writers share a file (`a_second_writer_is_refused`).
//! - No text taken from the node can end a line, forge a record or reach a terminal unescaped
//!   (`control_characters_never_reach_the_file`).
//! - `argv` may hold secrets and is chosen by the container: its first word and its hash are kept, nothing else.
//!
//! # What the chain proves
//! Loss or change in the middle, reordering and naive edits. Not against root on the node, who can write the whole
//! chain anew, and not against the loss of the last lines.

mod before;
mod bound;
mod chain;
mod error;
mod journal;
mod record;
mod recover;
#[cfg(test)]
mod tests;
mod verify;
mod walk;

pub use before::{Answer, Before, ProcessRecord};
pub use bound::ELLIPSIS;
pub use chain::{Digest, DigestError};
pub use error::AuditError;
pub use journal::{Intent, Journal, Node};
pub use record::{
    After, Body, Confirmed, Evidence, Forced, IntentBody, Killed, KilledProcess, Millis, OutcomeBody,
    PauseBody, Person, Record, RecoveredBody, Stamp, StepRecord, Target, Tool, Trigger, Triggered,
};
pub use verify::{VerifyError, VerifyReport, verify};
pub use walk::{Fault, OpenIntent};

pub use crate::leak::Outcome;
