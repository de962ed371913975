//! What we believe about each container over time: since when it looks leaked, and at which cgroups.
//!
//! Pure state: fed with sightings and the time, asked for a [`History`]. It holds no opinion on what a leak is;
//! whether a look was *clean* (no guard but time held) comes in as a value.
//!
//! # Invariants
//! - A changed identity (other cgroups, another process of our containerd, members that did not descend from the ones
//!   seen before) starts the clock anew (`a_new_incarnation_starts_the_clock_anew`).
//! - Looking again at the same facts changes nothing but the number of looks (`looking_again_is_idempotent`).

mod bundle;
mod identity;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use bundle::BundleIdentity;
pub use identity::Identity;
pub use unit::{MisplacedIdentity, UnitIdentity};

use crate::fact::Subject;
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

/// A subject whose looks can be told to be of the same thing.
pub trait Tracked: Subject {
    /// What must stay the same from look to look for their ages to add up.
    type Identity: Clone + PartialEq;

    /// The identity of what this look saw.
    fn identity(&self) -> Self::Identity;

    /// True if this look continues an earlier one.
    fn continues(&self, earlier: &Self::Identity) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry<I> {
    container: ContainerKey,
    identity: I,
    history: History,
}

/// All subjects of one sort that exist, one a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "Vec<Entry<I>>",
    into = "Vec<Entry<I>>",
    bound(serialize = "I: Clone + Serialize", deserialize = "I: Deserialize<'de>")
)]
pub struct Inventory<I = Identity> {
    entries: BTreeMap<ContainerKey, Entry<I>>,
}

// === impl Inventory ===

impl<I> Inventory<I> {
    /// Takes one look in, and says what is known with it.
    pub fn note<S: Tracked<Identity = I>>(&mut self, sighting: &S, look: Look, now: BootTime) -> History {
        let container = sighting.container().clone();
        let known = self.entries.remove(&container);
        let continued = known.filter(|entry| sighting.continues(&entry.identity));
        let first_seen = continued.as_ref().map_or(now, |entry| entry.history.first_seen);
        let before = continued.and_then(|entry| Some((entry.history.clean_since?, entry.history.looks)));
        let (clean_since, looks) = match (look, before) {
            (Look::Guarded, _) => (None, 0),
            (Look::Clean, None) => (Some(now), 1),
            (Look::Clean, Some((since, looks))) => (Some(since), looks.saturating_add(1)),
        };
        let history = History { first_seen, clean_since, looks };
        let identity = sighting.identity();
        let entry = Entry { container: container.clone(), identity, history: history.clone() };
        self.entries.insert(container, entry);
        history
    }

    /// Forgets those that the last full look did not find; returns them.
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

impl<I> Default for Inventory<I> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<I> From<Vec<Entry<I>>> for Inventory<I> {
    fn from(entries: Vec<Entry<I>>) -> Self {
        Self { entries: entries.into_iter().map(|entry| (entry.container.clone(), entry)).collect() }
    }
}

impl<I> From<Inventory<I>> for Vec<Entry<I>> {
    fn from(inventory: Inventory<I>) -> Self {
        inventory.entries.into_values().collect()
    }
}
