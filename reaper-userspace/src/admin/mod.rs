//! Serves what a node's keepers ask over HTTP: `/metrics`, `/livez`, `/readyz`.
//!
//! Reads only; there is no way to command the daemon from here. The page and the clock come in as functions, so
//! that this module knows neither the metrics nor the time.
//!
//! # Invariants
//! - `/livez` depends on the daemon's own heartbeat and on nothing outside: a restart of the daemon must not be the
//!   answer to a containerd that is down (`a_failed_component_does_not_end_the_daemon`).
//! - The port is bound before anything is served, and the caller learns which (`the_real_port_is_known_and_a_taken_one_is_refused`).

mod health;
mod server;

pub use health::{Health, Liveness, Readiness};
pub use server::{Admin, AdminError, Page};
