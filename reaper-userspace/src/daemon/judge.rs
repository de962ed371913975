//! From one sighting to one verdict: assess, remember, conclude. No clock, no I/O; live looks and replayed ones come
//! through here alike, which is what makes a trace worth recording.

use crate::fact::Sighting;
use crate::ident::LeakId;
use crate::inventory::{History, Inventory, Look};
use crate::policy::Policy;
use crate::time::BootTime;
use crate::verdict::{Freshness, Judge, LeakProof, Verdict, assess, conclude};

/// One subject, looked at and judged: a container's cgroup unless the type says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged<S = Sighting> {
    /// Its short name.
    pub id: LeakId,
    /// The facts.
    pub sighting: S,
    /// What was known over time.
    pub history: History,
    /// The judgement.
    pub verdict: Verdict<S>,
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
    /// Judges one subject, and lets the inventory remember the look.
    pub(super) fn judge<S: Judge>(self, inventory: &mut Inventory<S::Identity>, sighting: S) -> Judged<S> {
        let Self { policy, freshness, now } = self;
        let assessment = assess(&sighting, policy, freshness);
        let look = if assessment.vetoes.is_empty() { Look::Clean } else { Look::Guarded };
        let history = inventory.note(&sighting, look, now);
        let verdict = conclude(&sighting, assessment, &history, policy, now);
        Judged { id: sighting.id(), sighting, history, verdict }
    }
}

// === impl Judged ===

impl<S> Judged<S> {
    /// The proof, if it leaked.
    pub const fn proof(&self) -> Option<&LeakProof<S>> {
        match &self.verdict {
            Verdict::Leaked(proof) => Some(proof),
            Verdict::Live(_) | Verdict::Held { .. } => None,
        }
    }
}
