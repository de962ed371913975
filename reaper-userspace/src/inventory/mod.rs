//! What we believe about each container over time: since when it looks leaked, and at which cgroups.
//!
//! Pure state: fed with sightings and the time, asked for a [`History`]. It holds no opinion on what a leak is;
//! whether a look was *clean* (no guard but time held) comes in as a value.
//!
//! # Invariants
//! - A changed identity (other cgroups, another process of our containerd, members that did not descend from the ones
//!   seen before) starts the clock anew (`a_new_incarnation_starts_the_clock_anew`).
//! - Looking again at the same facts changes nothing but the number of looks (`looking_again_is_idempotent`).

mod identity;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use identity::Identity;

use crate::fact::Sighting;
use crate::ident::ContainerKey;
use crate::time::BootTime;

/// What was seen of one container so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// First sight of this identity.
    pub first_seen: BootTime,
    /// Since when every look was clean; `None` if the last one was not.
    pub clean_since: Option<BootTime>,
    /// Clean looks in a row, at most one every look gap counted by the caller.
    pub looks: u32,
}

/// Whether a look found any guard but time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Only time is missing.
    Clean,
    /// A guard held, or somebody owns it.
    Guarded,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    container: ContainerKey,
    identity: Identity,
    history: History,
}

/// All containers whose cgroups exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct Inventory {
    entries: BTreeMap<ContainerKey, Entry>,
}

// === impl Inventory ===

impl Inventory {
    /// Takes one look in, and says what is known with it.
    pub fn note(&mut self, sighting: &Sighting, look: Look, now: BootTime) -> History {
        let identity = Identity::of(sighting);
        let known = self.entries.remove(&sighting.container);
        let continued = known.filter(|entry| identity.continues(&entry.identity, sighting));
        let first_seen = continued.as_ref().map_or(now, |entry| entry.history.first_seen);
        let before = continued.and_then(|entry| Some((entry.history.clean_since?, entry.history.looks)));
        let (clean_since, looks) = match (look, before) {
            (Look::Guarded, _) => (None, 0),
            (Look::Clean, None) => (Some(now), 1),
            (Look::Clean, Some((since, looks))) => (Some(since), looks.saturating_add(1)),
        };
        let history = History { first_seen, clean_since, looks };
        let container = sighting.container.clone();
        let entry = Entry { container: container.clone(), identity, history: history.clone() };
        self.entries.insert(container, entry);
        history
    }

    /// Forgets the containers that the last full look did not find; returns them.
    pub fn retain(&mut self, seen: impl Fn(&ContainerKey) -> bool) -> Vec<ContainerKey> {
        let gone: Vec<ContainerKey> = self.entries.keys().filter(|key| !seen(key)).cloned().collect();
        for key in &gone {
            self.entries.remove(key);
        }
        gone
    }

    /// What is known of one container.
    pub fn history(&self, key: &ContainerKey) -> Option<&History> {
        self.entries.get(key).map(|entry| &entry.history)
    }

    /// Number of containers known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if none is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl From<Vec<Entry>> for Inventory {
    fn from(entries: Vec<Entry>) -> Self {
        Self { entries: entries.into_iter().map(|entry| (entry.container.clone(), entry)).collect() }
    }
}

impl From<Inventory> for Vec<Entry> {
    fn from(inventory: Inventory) -> Self {
        inventory.entries.into_values().collect()
    }
}
