//! Which guards a person may lift, and why the others never can be.

use std::ffi::OsStr;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;

use crate::audit::Forced;
use crate::leak::Guard;
use crate::policy::Policy;

/// A guard of age or budget. No other is a value of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Liftable {
    /// The grace; never the two looks.
    TooYoung,
    /// The budget.
    RateLimited,
    /// The storm breaker.
    Storm,
}

/// Guards that a person lifts for this command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Force")]
pub(super) struct Force {
    /// Lift a guard of age or budget (repeatable); what says that something may be alive, or another's, cannot be lifted
    #[arg(long, value_name = "GUARD", requires = "reason", value_parser = LiftableParser)]
    force_guard: Vec<Liftable>,
    /// Why; recorded with who you are
    #[arg(long, value_name = "TEXT", requires = "force_guard", value_parser = one_line)]
    reason: Option<String>,
}

/// Reads a guard's word, and explains itself where the guard cannot be lifted.
#[derive(Clone, Copy, Debug)]
struct LiftableParser;

/// A sentence for people and logs.
pub(super) fn one_line(text: &str) -> Result<String, String> {
    const LONGEST: usize = 500;
    if text.trim().is_empty() {
        return Err("say why".to_owned());
    }
    if text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(format!("one line of at most {LONGEST} bytes"));
    }
    Ok(text.to_owned())
}

// === impl Liftable ===

impl Liftable {
    const ALL: [Self; 3] = [Self::TooYoung, Self::RateLimited, Self::Storm];

    const fn guard(self) -> Guard {
        match self {
            Self::TooYoung => Guard::TooYoung,
            Self::RateLimited => Guard::RateLimited,
            Self::Storm => Guard::Storm,
        }
    }

    const fn help(self) -> &'static str {
        match self {
            Self::TooYoung => "the grace; the two looks stay",
            Self::RateLimited => "the budget a minute",
            Self::Storm => "too many leaks at once",
        }
    }
}

/// Why a guard stays; `None` for those that can be lifted.
const fn stays(guard: Guard) -> Option<&'static str> {
    match guard {
        Guard::TooYoung | Guard::RateLimited | Guard::Storm => None,
        Guard::KnownToRuntime
        | Guard::InFlight
        | Guard::LiveInit
        | Guard::RecordPresent
        | Guard::Foreign
        | Guard::ShimInside
        | Guard::SelfInside
        | Guard::StrayMember => Some("it says that something may be alive or somebody else's"),
        Guard::SourceUnavailable | Guard::EventGap => Some(
            "a question has no answer, and nobody may guess it; make the source answer, `explain` names it",
        ),
        Guard::IdentityChanged | Guard::NoProvenance => {
            Some("it is not proven that this cgroup is the container's")
        }
        Guard::Protected => Some("a rule protects it; change the rule if it is yours"),
        Guard::Paused => Some("acting is paused; `cgroup-reaper resume` ends that"),
        Guard::AuditUnavailable => Some("what cannot be recorded is not done"),
        Guard::ModeObserve => Some("it does not hold for reap by hand"),
    }
}

// === impl Force ===

impl Force {
    pub(super) fn lifts(&self, guard: Liftable) -> bool {
        self.force_guard.contains(&guard)
    }

    /// For the record of every act.
    pub(super) fn forced(&self) -> Option<Forced> {
        let mut guards: Vec<Guard> = self.force_guard.iter().map(|guard| guard.guard()).collect();
        guards.dedup();
        self.reason.clone().map(|reason| Forced { guards, reason })
    }

    /// The policy without the guards of age and budget that were lifted.
    pub(super) fn relax(&self, mut policy: Policy) -> Policy {
        if self.lifts(Liftable::TooYoung) {
            policy.grace = std::time::Duration::ZERO;
        }
        if self.lifts(Liftable::RateLimited) {
            policy.budget.per_minute = u32::MAX;
        }
        policy
    }
}

// === impl LiftableParser ===

impl TypedValueParser for LiftableParser {
    type Value = Liftable;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Liftable, clap::Error> {
        let word = value.to_string_lossy();
        if let Some(liftable) = Liftable::ALL.iter().find(|one| one.guard().as_str() == word) {
            return Ok(*liftable);
        }
        let words = Liftable::ALL.map(|one| one.guard().as_str()).join(", ");
        let reason = Guard::ALL.iter().find(|guard| guard.as_str() == word).and_then(|guard| stays(*guard));
        let told = match reason {
            Some(reason) => format!("{word} can never be lifted: {reason}\n\nCan be lifted: {words}\n"),
            None => format!("there is no guard {word:?}\n\nCan be lifted: {words}\n"),
        };
        Err(clap::Error::raw(ErrorKind::InvalidValue, told).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |one: &Liftable| PossibleValue::new(one.guard().as_str()).help(one.help());
        Some(Box::new(Liftable::ALL.map(|one| value(&one)).into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        force: Force,
    }

    fn force(words: &[&str]) -> Result<Force, String> {
        let words = [&["reap"], words].concat();
        Command::try_parse_from(words).map(|command| command.force).map_err(|error| error.to_string())
    }

    #[test]
    fn guards_of_age_and_budget_are_lifted_with_a_reason() {
        let lifted =
            force(&["--force-guard", "too_young", "--force-guard", "storm", "--reason", "INC-7"]).unwrap();
        assert!(lifted.lifts(Liftable::TooYoung) && !lifted.lifts(Liftable::RateLimited));
        let forced = lifted.forced().unwrap();
        assert_eq!((forced.guards, forced.reason.as_str()), (vec![Guard::TooYoung, Guard::Storm], "INC-7"));
        assert!(force(&["--force-guard", "storm"]).unwrap_err().contains("--reason"));
        assert!(force(&["--reason", "x"]).is_err());
        assert!(force(&["--force-guard", "storm", "--reason", "a\nb"]).is_err());
    }

    #[test]
    fn every_other_guard_is_refused_and_says_why() {
        for guard in Guard::ALL {
            let answer = force(&["--force-guard", guard.as_str(), "--reason", "x"]);
            match stays(*guard) {
                None => assert!(answer.is_ok(), "{guard}"),
                Some(reason) => {
                    let told = answer.unwrap_err();
                    assert!(told.contains("never be lifted") && told.contains(reason), "{guard}: {told}");
                }
            }
        }
        assert!(force(&["--force-guard", "xyz", "--reason", "x"]).unwrap_err().contains("no guard"));
    }

    #[test]
    fn the_grace_is_lifted_and_the_gap_between_the_looks_stays() {
        let lifted = force(&["--force-guard", "too_young", "--reason", "x"]).unwrap();
        let policy = lifted.relax(Policy::default());
        assert!(policy.grace.is_zero());
        assert_eq!(policy.look_gap, Policy::default().look_gap);
        assert_eq!(policy.budget, Policy::default().budget);
    }
}
