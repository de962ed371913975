//! The veto table of failed scopes.
//!
//! What is done about one is small: systemd forgets that it failed, and with that the unit. What must not happen is that
//! it is forgotten before the runtime has read how its container ended (cri-o 7374), so nothing may be left of the
//! container that anybody could still ask about.

use super::guards::{Case, Rule, asks, event_gap, owner, protected_by_rule, running, unanswered, vetoes};
use super::{Assessment, Evidence, Freshness, Judge, evidence};
use crate::fact::{ActiveState, UnitSighting};
use crate::ident::Lookup;
use crate::leak::{Cause, Guard, LeakKind, Source};
use crate::policy::Policy;

type UnitCase<'a> = Case<'a, UnitSighting>;

const RULES: &[Rule<UnitSighting>] = &[
    Rule {
        guard: Guard::SourceUnavailable,
        means: "every question must have an answer; an error is not an absence",
        finds: source_unavailable,
    },
    Rule {
        guard: Guard::KnownToRuntime,
        means: "no task, shim or other container's record may be there for it, nor for its id in another namespace",
        finds: known_to_runtime,
    },
    Rule {
        guard: Guard::InFlight,
        means: "no runtime command for it may be running, and no job of systemd's be queued for it",
        finds: in_flight,
    },
    Rule { guard: Guard::LiveInit, means: "nothing may be in its cgroup", finds: live_init },
    Rule { guard: Guard::EventGap, means: "no kernel event may have been missed", finds: event_gap },
    Rule {
        guard: Guard::IdentityChanged,
        means: "it must be a scope that failed",
        finds: |case| match case.sighting.unit.state {
            ActiveState::Failed => vec![],
            ActiveState::Busy | ActiveState::Inactive => vec!["it is not failed any more".to_owned()],
        },
    },
    Rule { guard: Guard::Protected, means: "protected names stay", finds: protected },
];

// === impl UnitSighting ===

impl Judge for UnitSighting {
    fn rules() -> Vec<(Guard, &'static str)> {
        RULES.iter().map(|rule| (rule.guard, rule.means)).collect()
    }

    fn assess(&self, policy: &Policy, freshness: &Freshness) -> Assessment {
        let kind = LeakKind::UnitFailed;
        let case = Case { sighting: self, kind, policy, freshness };
        Assessment { kind, cause: Cause::Unknown, evidence: collect(self), vetoes: vetoes(RULES, &case) }
    }
}

fn source_unavailable(case: &UnitCase<'_>) -> Vec<String> {
    let sighting = case.sighting;
    let mut reasons = sighting.unreadable.clone();
    reasons.extend(unanswered(&sighting.runtimes, &sighting.shims));
    reasons.extend(sighting.populated.unavailable().cloned());
    reasons.sort();
    reasons.dedup();
    reasons
}

fn known_to_runtime(case: &UnitCase<'_>) -> Vec<String> {
    let mut reasons: Vec<String> = owner(case.sighting).into_iter().collect();
    for runtime in &case.sighting.runtimes {
        for other in runtime.overlapping.found().into_iter().flatten() {
            reasons.push(format!("the record of {other} at {} names its cgroup too", runtime.address));
        }
    }
    reasons.extend(case.sighting.namesakes.iter().map(|other| format!("{other} has a task or a shim")));
    reasons
}

fn in_flight(case: &UnitCase<'_>) -> Vec<String> {
    let job = case.sighting.unit.has_job.then(|| "systemd has a job for it".to_owned());
    running(case.sighting.in_flight.iter()).into_iter().chain(job).collect()
}

fn live_init(case: &UnitCase<'_>) -> Vec<String> {
    let populated = case.sighting.populated == Lookup::Found(true);
    populated.then(|| "processes are in its cgroup".to_owned()).into_iter().collect()
}

fn protected(case: &UnitCase<'_>) -> Vec<String> {
    let UnitSighting { unit, container, runtimes, .. } = case.sighting;
    let mut reasons = protected_by_rule(container, unit.cgroup.as_ref(), case.policy);
    reasons.extend(asks(None, runtimes));
    reasons
}

fn collect(sighting: &UnitSighting) -> Vec<Evidence> {
    let unit = &sighting.unit;
    let failed = format!("failed with result {}, invocation {}", unit.result.escape_debug(), unit.invocation);
    let mut evidence = vec![Evidence { source: Source::Systemd, what: failed }];
    evidence.extend(evidence::answers(sighting));
    if sighting.populated == Lookup::Found(false) {
        let what = "nothing is in its cgroup, in any hierarchy".to_owned();
        evidence.push(Evidence { source: Source::Cgroupfs, what });
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{TaskStatus, sample};

    fn guards(spoil: impl FnOnce(&mut UnitSighting)) -> Vec<Guard> {
        let mut sighting = sample::failed_unit();
        spoil(&mut sighting);
        let vetoes = sighting.assess(&Policy::default(), &Freshness::Fresh).vetoes;
        vetoes.into_iter().map(|veto| veto.guard).collect()
    }

    fn unknown<T>() -> Lookup<T> {
        Lookup::Unavailable("EIO".to_owned())
    }

    #[test]
    fn a_failed_scope_that_nobody_can_ask_about_has_no_veto() {
        assert_eq!(guards(|_| {}), []);
        assert_eq!(guards(|s| s.runtimes[0].record = Lookup::NotFound), []);
        assert_eq!(guards(|s| s.unit.cgroup = None), []);
    }

    #[test]
    fn an_unanswered_question_vetoes() {
        let spoils: [fn(&mut UnitSighting); 6] = [
            |s| s.runtimes.clear(),
            |s| s.runtimes[0].task = unknown(),
            |s| s.runtimes[0].record = unknown(),
            |s| s.populated = unknown(),
            |s| s.unreadable.push("/proc".to_owned()),
            |s| s.shims.push(sample::shim_answer(unknown())),
        ];
        for (number, spoil) in spoils.into_iter().enumerate() {
            assert_eq!(guards(spoil), [Guard::SourceUnavailable], "{number}");
        }
    }

    #[test]
    fn whoever_may_still_read_the_result_vetoes() {
        for status in [TaskStatus::Stopped, TaskStatus::Running, TaskStatus::Unknown] {
            assert_eq!(guards(|s| s.runtimes[0].task = Lookup::Found(status)), [Guard::KnownToRuntime]);
        }
        let stopped = sample::shim_answer(Lookup::Found(TaskStatus::Stopped));
        assert_eq!(guards(|s| s.shims.push(stopped)), [Guard::KnownToRuntime]);
        assert_eq!(guards(|s| s.shims.push(sample::shim_answer(Lookup::NotFound))), []);
        assert_eq!(guards(|s| s.namesakes.push(sample::container())), [Guard::KnownToRuntime]);
        let overlapping = Lookup::Found(vec![sample::container()]);
        assert_eq!(guards(|s| s.runtimes[0].overlapping = overlapping), [Guard::KnownToRuntime]);
        assert_eq!(guards(|s| s.in_flight.push(sample::command("delete"))), [Guard::InFlight]);
        assert_eq!(guards(|s| s.unit.has_job = true), [Guard::InFlight]);
        assert_eq!(guards(|s| s.populated = Lookup::Found(true)), [Guard::LiveInit]);
        assert_eq!(guards(|s| s.unit.state = ActiveState::Busy), [Guard::IdentityChanged]);
    }

    #[test]
    fn protected_names_stay_and_a_gap_holds() {
        let policy = Policy { protect_ids: [sample::container().id].into(), ..Policy::default() };
        let vetoes = sample::failed_unit().assess(&policy, &Freshness::Fresh).vetoes;
        assert_eq!(vetoes.first().map(|veto| veto.guard), Some(Guard::Protected));
        let stale = Freshness::Stale("ring full".to_owned());
        let vetoes = sample::failed_unit().assess(&Policy::default(), &stale).vetoes;
        assert_eq!(vetoes.first().map(|veto| veto.guard), Some(Guard::EventGap));
    }
}
