//! Judges one subject from the facts: in use, held back by guards, or leaked beyond doubt.
//!
//! `assess(facts) -> Assessment` looks at one sighting; `conclude(assessment, history) -> Verdict` adds what only
//! time can show. Both are pure: no clock, no I/O, the same facts give the same verdict. A [`LeakProof`] can be
//! made here only, and only without a single veto; everything that acts demands one.
//!
//! # Invariants
//! - An unanswered question is a veto, never absence (`an_unanswered_question_always_vetoes`).
//! - Taking evidence away never turns a veto into a proof (`judge_is_monotone_in_evidence`).
//! - Two looks apart, at the same cgroups, come before every proof.

mod bundle;
mod evidence;
mod guards;
mod misplaced;
mod proof;
mod shape;
#[cfg(test)]
mod tests;
mod unit;

pub use evidence::Evidence;
pub use guards::{Case, RULES, Rule};
pub use proof::LeakProof;

use serde::{Deserialize, Serialize};

use crate::fact::Sighting;
use crate::inventory::{History, Tracked};
use crate::leak::{Cause, Guard, LeakKind, LeakState};
use crate::policy::Policy;
use crate::time::BootTime;

/// Whether what the verdict rests on is up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// No event was lost since the last full look.
    Fresh,
    /// Something was missed; the text says what.
    Stale(String),
}

/// One reason not to act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Veto {
    /// Which guard.
    pub guard: Guard,
    /// What it saw.
    pub detail: String,
    /// When time alone lifts it, if it does.
    #[serde(skip)]
    pub ready_at: Option<BootTime>,
}

/// What one look showed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an assessment that nobody concludes was a look for nothing"]
pub struct Assessment {
    /// The kind of leak that this has the shape of.
    pub kind: LeakKind,
    /// What made it leak, as far as can be told.
    pub cause: Cause,
    /// What speaks for a leak.
    pub evidence: Vec<Evidence>,
    /// What speaks against acting, time apart.
    pub vetoes: Vec<Veto>,
}

/// A subject with a veto table of its own.
pub trait Judge: Tracked {
    /// Each row of its table, in the order they are reported: the guard, and its condition in words.
    fn rules() -> Vec<(Guard, &'static str)>;

    /// Looks at one sighting.
    fn assess(&self, policy: &Policy, freshness: &Freshness) -> Assessment;
}

/// The judgement of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict<S = Sighting> {
    /// In use; the text says by whom.
    Live(String),
    /// Has the shape of a leak, and these guards hold.
    Held {
        /// What it looks like.
        kind: LeakKind,
        /// Why, as far as can be told.
        cause: Cause,
        /// Suspected when only time is missing, else protected.
        state: LeakState,
        /// What speaks for a leak.
        evidence: Vec<Evidence>,
        /// What holds; never empty.
        vetoes: Vec<Veto>,
    },
    /// Leaked.
    Leaked(Box<LeakProof<S>>),
}

/// Looks at one sighting.
pub fn assess<S: Judge>(sighting: &S, policy: &Policy, freshness: &Freshness) -> Assessment {
    sighting.assess(policy, freshness)
}

/// Adds what only time can show, and makes the proof if nothing holds.
pub fn conclude<S: Judge>(
    sighting: &S,
    assessment: Assessment,
    history: &History,
    policy: &Policy,
    now: BootTime,
) -> Verdict<S> {
    let Assessment { kind, cause, mut evidence, mut vetoes } = assessment;
    if let Some(owner) = guards::owner(sighting) {
        return Verdict::Live(owner);
    }
    evidence.extend(evidence::of_time(history, now));
    vetoes.extend(guards::too_young(sighting, history, policy, now));
    if vetoes.is_empty() {
        return Verdict::Leaked(Box::new(LeakProof::new(kind, cause, sighting.clone(), evidence)));
    }
    let only_time = vetoes.iter().all(|veto| veto.ready_at.is_some());
    let state = if only_time { LeakState::Suspected } else { LeakState::Protected };
    Verdict::Held { kind, cause, state, evidence, vetoes }
}

// === impl Veto ===

impl Veto {
    /// A veto that time alone does not lift.
    const fn new(guard: Guard, detail: String) -> Self {
        Self { guard, detail, ready_at: None }
    }
}

// === impl Sighting ===

impl Judge for Sighting {
    fn rules() -> Vec<(Guard, &'static str)> {
        RULES.iter().map(|rule| (rule.guard, rule.means)).collect()
    }

    fn assess(&self, policy: &Policy, freshness: &Freshness) -> Assessment {
        let (kind, cause) = shape::classify(self);
        let facts = Case { sighting: self, kind, policy, freshness };
        let vetoes = guards::vetoes(RULES, &facts);
        Assessment { kind, cause, vetoes, evidence: evidence::collect(self, kind) }
    }
}

// === impl Verdict ===

impl<S> Verdict<S> {
    /// The leak's state; `None` for what is in use.
    pub const fn state(&self) -> Option<LeakState> {
        match self {
            Self::Live(_) => None,
            Self::Held { state, .. } => Some(*state),
            Self::Leaked(_) => Some(LeakState::Confirmed),
        }
    }

    /// When time alone would change this verdict.
    pub fn ready_at(&self) -> Option<BootTime> {
        match self {
            Self::Held { vetoes, state: LeakState::Suspected, .. } => {
                vetoes.iter().filter_map(|veto| veto.ready_at).max()
            }
            Self::Live(_) | Self::Held { .. } | Self::Leaked(_) => None,
        }
    }
}
