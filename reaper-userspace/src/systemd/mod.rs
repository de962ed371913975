//! Container scopes as systemd has them, over the system bus.
//!
//! Reads by pattern, so that one call is enough where nothing has failed; the write half is [`control`] alone. Never
//! lists, loads or asks about a unit that is not a container's scope by its name.
//!
//! # Invariants
//! - A node that systemd did not boot has no units: that alone is `NotFound`. A bus that is absent, silent or answers
//!   something else makes the answer unavailable (`only_a_node_without_systemd_has_no_units`).
//! - Every question has a deadline ([`DEADLINE`]) that covers connecting too.
//!
//! # Facts of systemd
//! - A unit is identified by name and `InvocationID`: `src/core/unit.c:unit_acquire_invocation_id`, new at every start.
//! - Reading the properties of a unit that is not loaded loads an empty one, which answers `inactive`
//!   (`src/core/dbus.c:find_unit`).

mod bus;
pub mod control;
mod scope;

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use crate::fact::UnitFact;
use crate::ident::{Lookup, UnitName};
use crate::kernel::chain;
use bus::Bus;
pub use bus::BusError;

/// For everything that one question takes. systemd answers from memory; a job in progress does not delay it.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// How many failed scopes are asked about in one look; more are left for the next.
const LIMIT: usize = 256;

/// Where systemd is reached.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    /// Exists on nodes that systemd booted (`sd_booted(3)`).
    booted: &'a str,
    /// The system bus.
    bus: &'a str,
}

const PLACE: Place<'static> = Place { booted: "/run/systemd/system", bus: "/run/dbus/system_bus_socket" };

/// Scopes of containers that failed and are still loaded; `NotFound` without systemd.
pub async fn failed_scopes() -> Lookup<Vec<UnitFact>> {
    PLACE.ask("failed scopes", scope::failed).await
}

/// One scope; `NotFound` if it is not loaded, or without systemd.
pub async fn scope(name: &UnitName) -> Lookup<UnitFact> {
    let one = PLACE.ask("a scope", async |bus: &Bus| scope::one(bus, name).await).await;
    one.and_then(|found| found.map_or(Lookup::NotFound, Lookup::Found))
}

// === impl Place ===

impl Place<'_> {
    async fn ask<T>(self, what: &str, question: impl AsyncFnOnce(&Bus) -> Result<T, BusError>) -> Lookup<T> {
        if !Path::new(self.booted).exists() {
            return Lookup::NotFound;
        }
        let asked = async { question(&Bus::connect(self.bus).await?).await };
        match timeout(DEADLINE, asked).await.unwrap_or(Err(BusError::Deadline)) {
            Ok(answer) => Lookup::Found(answer),
            Err(error) => Lookup::Unavailable(format!("systemd, {what}: {}", chain(&error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(booted: &str, bus: &str) -> Lookup<Vec<UnitFact>> {
        Place { booted, bus }.ask("failed scopes", scope::failed).await
    }

    #[tokio::test]
    async fn only_a_node_without_systemd_has_no_units() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().to_str().unwrap();
        assert!(asked("/nowhere", "/nowhere").await.is_not_found());
        let no_bus = asked(here, &format!("{here}/bus")).await;
        assert!(no_bus.unavailable().is_some_and(|why| why.contains("No such file")), "{no_bus:?}");
    }

    #[tokio::test]
    async fn a_bus_that_says_nothing_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let answer = asked("/", socket.to_str().unwrap()).await;
        assert!(answer.unavailable().is_some_and(|why| why.contains("no answer")), "{answer:?}");
    }

    #[tokio::test]
    async fn a_socket_that_speaks_something_else_is_no_answer() {
        use tokio::io::AsyncWriteExt as _;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let speak = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        };
        let (answer, ()) = tokio::join!(asked("/", socket.to_str().unwrap()), speak);
        assert!(answer.unavailable().is_some(), "{answer:?}");
    }
}
