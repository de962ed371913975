//! Wires the parts: the only module that knows all of them.
//!
//! [`engine`] looks and judges, [`act`] carries out one plan; [`service`] is the loop around both, fed with kernel
//! events by `hints`, which `listen` reads and `follow` makes sense of, and told by `schedule` when to look. [`trace`] records looks and
//! judges them again,
//! [`stream`] shows events as they come.

pub mod act;
mod awake;
pub mod brakes;
mod bystander;
pub mod clock;
mod creates;
pub mod engine;
mod follow;
mod hints;
pub mod holds;
pub mod journal;
mod judge;
mod ledger;
mod listen;
pub mod lock;
pub mod memory;
mod notify;
mod records;
pub mod recovery;
mod report;
mod schedule;
pub mod service;
pub mod stream;
mod sweep;
pub mod trace;
pub mod who;

pub use creates::Creates;
pub use sweep::Tally;
