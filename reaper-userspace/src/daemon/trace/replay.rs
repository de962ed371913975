//! Judges recorded looks anew.

use super::{Scope, TracedLook};
use crate::daemon::judge::{Court, Judged};
use crate::ident::ContainerKey;
use crate::inventory::Inventory;

/// Remembers from look to look what the recorded program remembered.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    inventory: Inventory,
}

/// What one look comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The containers, judged, in the order of the look.
    pub judged: Vec<Judged>,
    /// Containers known before that have no cgroup any more.
    pub gone: Vec<ContainerKey>,
}

// === impl Replay ===

impl Replay {
    /// Judges the next look.
    pub fn look(&mut self, look: TracedLook<'_>) -> Replayed {
        if let Some(inventory) = look.inventory {
            self.inventory = inventory.into_owned();
        }
        let court = Court { policy: &look.policy, freshness: &look.freshness, now: look.at };
        let sightings = look.sightings.into_owned();
        let judge = |sighting| court.judge(&mut self.inventory, sighting);
        let judged: Vec<Judged> = sightings.into_iter().map(judge).collect();
        let gone = match look.scope {
            Scope::Node => {
                self.inventory.retain(|key| judged.iter().any(|one| one.sighting.container == *key))
            }
            Scope::Recheck => vec![],
        };
        Replayed { judged, gone }
    }
}
