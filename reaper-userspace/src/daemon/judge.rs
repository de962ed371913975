//! From one sighting to one verdict: assess, remember, conclude. No clock, no I/O; live looks and replayed ones come
//! through here alike, which is what makes a trace worth recording.

use crate::fact::Sighting;
use crate::ident::LeakId;
use crate::inventory::{History, Inventory, Look};
use crate::policy::Policy;
use crate::time::BootTime;
use crate::verdict::{Freshness, Verdict, assess, conclude};

/// One container, looked at and judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its short name.
    pub id: LeakId,
    /// The facts.
    pub sighting: Sighting,
    /// What was known over time.
    pub history: History,
    /// The judgement.
    pub verdict: Verdict,
}

/// What is the same for all containers of one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Court<'a> {
    pub(super) policy: &'a Policy,
    pub(super) freshness: &'a Freshness,
    pub(super) now: BootTime,
}

// === impl Court ===

impl Court<'_> {
    /// Judges one container, and lets the inventory remember the look.
    pub(super) fn judge(self, inventory: &mut Inventory, sighting: Sighting) -> Judged {
        let Self { policy, freshness, now } = self;
        let assessment = assess(&sighting, policy, freshness);
        let look = if assessment.vetoes.is_empty() { Look::Clean } else { Look::Guarded };
        let history = inventory.note(&sighting, look, now);
        let verdict = conclude(&sighting, assessment, &history, policy, now);
        let id = LeakId::of(&sighting.container, &sighting.cgroup);
        Judged { id, sighting, history, verdict }
    }
}
