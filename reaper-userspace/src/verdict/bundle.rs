//! The veto table of dead bundles.
//!
//! A bundle is dead when its shim, its task and its cgroup are gone, and only mounts at its rootfs are left. Taking
//! those away is what containerd itself tries at every start (`core/runtime/v2/bundle.go:Delete`): a process that
//! still uses one keeps it, because nothing is ever detached lazily.

use super::guards::{Case, Rule, asks, event_gap, owner, protected_by_rule, running, unanswered, vetoes};
use super::{Assessment, Evidence, Freshness, Judge, evidence};
use crate::fact::{BundleSighting, CreateProgress};
use crate::ident::Lookup;
use crate::leak::{Cause, Guard, LeakKind, Source};
use crate::policy::Policy;

type BundleCase<'a> = Case<'a, BundleSighting>;

const RULES: &[Rule<BundleSighting>] = &[
    Rule {
        guard: Guard::SourceUnavailable,
        means: "every question must have an answer; an error is not an absence",
        finds: source_unavailable,
    },
    Rule {
        guard: Guard::KnownToRuntime,
        means: "no task, no shim of its group, and nobody listening at the socket it names",
        finds: known_to_runtime,
    },
    Rule { guard: Guard::InFlight, means: "no runtime command for it may be running", finds: in_flight },
    Rule { guard: Guard::LiveInit, means: "its recorded init must not live, wherever", finds: live_init },
    Rule { guard: Guard::EventGap, means: "no kernel event may have been missed", finds: event_gap },
    Rule { guard: Guard::Protected, means: "protected names stay", finds: protected },
];

// === impl BundleSighting ===

impl Judge for BundleSighting {
    fn rules() -> Vec<(Guard, &'static str)> {
        RULES.iter().map(|rule| (rule.guard, rule.means)).collect()
    }

    fn assess(&self, policy: &Policy, freshness: &Freshness) -> Assessment {
        let kind = LeakKind::BundleDead;
        let case = Case { sighting: self, kind, policy, freshness };
        Assessment { kind, cause: cause(self), evidence: collect(self), vetoes: vetoes(RULES, &case) }
    }
}

fn cause(sighting: &BundleSighting) -> Cause {
    match sighting.bundle.progress {
        Lookup::Found(CreateProgress::Started) => Cause::CreateKilled,
        Lookup::Found(CreateProgress::Finished) => Cause::ShimDead,
        Lookup::Found(CreateProgress::NeverRan) | Lookup::NotFound | Lookup::Unavailable(_) => Cause::Unknown,
    }
}

fn source_unavailable(case: &BundleCase<'_>) -> Vec<String> {
    let sighting = case.sighting;
    let mut reasons = sighting.unreadable.clone();
    reasons.extend(unanswered(&sighting.runtimes, &sighting.shims));
    let mut note = |reason: Option<&String>| reasons.extend(reason.cloned());
    note(sighting.directory.unavailable());
    note(sighting.mounts.unavailable());
    note(sighting.listener.unavailable());
    note(sighting.runc_state.unavailable());
    note(sighting.bundle.group.unavailable());
    if let Lookup::Found(state) = &sighting.runc_state {
        note(state.init_alive.unavailable());
    }
    reasons.sort();
    reasons.dedup();
    reasons
}

fn known_to_runtime(case: &BundleCase<'_>) -> Vec<String> {
    let mut reasons: Vec<String> = owner(case.sighting).into_iter().collect();
    // A shim that lives may still remove what it mounted, whatever it says of this container.
    let shims = case.sighting.shims.iter();
    reasons.extend(shims.map(|shim| format!("shim {} of its group is alive", shim.process.tgid)));
    if case.sighting.listener.found().is_some() {
        reasons.push("somebody listens at the socket that the bundle names".to_owned());
    }
    reasons
}

fn protected(case: &BundleCase<'_>) -> Vec<String> {
    let BundleSighting { bundle, runtimes, .. } = case.sighting;
    let mut reasons = protected_by_rule(&bundle.key, bundle.cgroup.found(), case.policy);
    reasons.extend(asks(Some(bundle), runtimes));
    reasons
}

fn in_flight(case: &BundleCase<'_>) -> Vec<String> {
    running(case.sighting.in_flight.iter())
}

fn live_init(case: &BundleCase<'_>) -> Vec<String> {
    let Lookup::Found(state) = &case.sighting.runc_state else { return vec![] };
    match (&state.init, &state.init_alive) {
        (Some(init), Lookup::Found(true)) => vec![format!("init {} is alive", init.tgid)],
        _ => vec![],
    }
}

fn collect(sighting: &BundleSighting) -> Vec<Evidence> {
    let mounted = sighting.mounts.found().into_iter().flatten().map(|mount| Evidence {
        source: Source::Files,
        what: format!("{} is still mounted", mount.target.display()),
    });
    let mut evidence: Vec<Evidence> = mounted.collect();
    evidence.extend(evidence::answers(sighting));
    let mut say = |source, what: &str| evidence.push(Evidence { source, what: what.to_owned() });
    if sighting.unreadable.is_empty() {
        say(Source::Cgroupfs, "its cgroup is gone from every hierarchy");
    }
    if sighting.shims.is_empty() && sighting.listener.is_not_found() {
        say(Source::Shim, "no shim serves its group and nobody listens at its socket");
    }
    if sighting.in_flight.is_empty() {
        say(Source::Procfs, "no runtime command for it is running");
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{Ownership, RuncState, TaskStatus, sample};
    use crate::inventory::{History, Inventory, Look};
    use crate::time::BootTime;
    use crate::verdict::{Verdict, conclude};

    fn unknown<T>() -> Lookup<T> {
        Lookup::Unavailable("asked in vain".to_owned())
    }

    fn guards(sighting: &BundleSighting) -> Vec<Guard> {
        let assessment = sighting.assess(&Policy::default(), &Freshness::Fresh);
        assessment.vetoes.iter().map(|veto| veto.guard).collect()
    }

    fn spoiled(spoil: impl FnOnce(&mut BundleSighting)) -> Vec<Guard> {
        let mut sighting = sample::dead_bundle();
        spoil(&mut sighting);
        guards(&sighting)
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::default().after(std::time::Duration::from_secs(seconds))
    }

    fn judged(sighting: &BundleSighting, history: &History) -> Verdict<BundleSighting> {
        let policy = Policy::default();
        let assessment = sighting.assess(&policy, &Freshness::Fresh);
        conclude(sighting, assessment, history, &policy, at(2_000))
    }

    #[test]
    fn a_bundle_that_nobody_speaks_for_is_dead_after_two_looks_and_the_grace() {
        let sighting = sample::dead_bundle();
        assert_eq!(guards(&sighting), []);
        let mut ages = Inventory::default();
        let first = ages.note(&sighting, Look::Clean, at(1_000));
        assert!(matches!(judged(&sighting, &first), Verdict::Held { .. }), "one look is not enough");
        let second = ages.note(&sighting, Look::Clean, at(1_900));
        let Verdict::Leaked(proof) = judged(&sighting, &second) else { panic!("not proven") };
        assert_eq!((proof.kind(), proof.cause()), (LeakKind::BundleDead, Cause::CreateKilled));
    }

    #[test]
    fn every_question_without_an_answer_vetoes() {
        let spoils: [fn(&mut BundleSighting); 10] = [
            |s| s.directory = unknown(),
            |s| s.mounts = unknown(),
            |s| s.listener = unknown(),
            |s| s.runc_state = unknown(),
            |s| s.bundle.group = unknown(),
            |s| s.unreadable.push("freezer: EIO".to_owned()),
            |s| s.runtimes[0].task = unknown(),
            |s| s.runtimes[0].record = unknown(),
            |s| s.runtimes[0].server = unknown(),
            |s| s.runtimes[0].ownership = Ownership::Foreign,
        ];
        for (number, spoil) in spoils.into_iter().enumerate() {
            assert_eq!(spoiled(spoil), [Guard::SourceUnavailable], "{number}");
        }
    }

    #[test]
    fn whoever_may_still_own_it_vetoes() {
        let with_init = |alive| {
            let path = "/s".into();
            RuncState { path, init: Some(sample::key(9, 9)), init_alive: alive }
        };
        let known = [Guard::KnownToRuntime];
        for status in [TaskStatus::Stopped, TaskStatus::Running, TaskStatus::Unknown] {
            assert_eq!(spoiled(|s| s.runtimes[0].task = Lookup::Found(status)), known);
        }
        assert_eq!(spoiled(|s| s.listener = Lookup::Found(())), known);
        assert_eq!(spoiled(|s| s.shims.push(sample::shim_answer(Lookup::NotFound))), known);
        assert_eq!(spoiled(|s| s.in_flight.push(sample::command("delete"))), [Guard::InFlight]);
        let alive = with_init(Lookup::Found(true));
        assert_eq!(spoiled(|s| s.runc_state = Lookup::Found(alive)), [Guard::LiveInit]);
        let dead = with_init(Lookup::Found(false));
        assert_eq!(spoiled(|s| s.runc_state = Lookup::Found(dead)), []);
        let unclear = with_init(unknown());
        assert_eq!(spoiled(|s| s.runc_state = Lookup::Found(unclear)), [Guard::SourceUnavailable]);
    }

    #[test]
    fn a_task_makes_it_live_and_names_that_are_protected_stay() {
        let mut owned = sample::dead_bundle();
        owned.runtimes[0].task = Lookup::Found(TaskStatus::Stopped);
        let history = History { first_seen: at(1), clean_since: None, looks: 0 };
        assert!(matches!(judged(&owned, &history), Verdict::Live(_)));
        let policy = Policy { protect_ids: [sample::container().id].into(), ..Policy::default() };
        let vetoes = sample::dead_bundle().assess(&policy, &Freshness::Fresh).vetoes;
        assert_eq!(vetoes.first().map(|veto| veto.guard), Some(Guard::Protected));
        let stale = Freshness::Stale("ring full".to_owned());
        let vetoes = sample::dead_bundle().assess(&Policy::default(), &stale).vetoes;
        assert_eq!(vetoes.first().map(|veto| veto.guard), Some(Guard::EventGap));
    }

    #[test]
    fn another_bundle_or_a_new_mount_of_the_same_name_starts_the_clock_anew() {
        let changes: [fn(&mut BundleSighting); 3] = [
            |s| s.directory = Lookup::Found(crate::fact::FileId { device: 30, inode: 1_235 }),
            |s| s.mounts = Lookup::Found(vec![sample::mount(79, "rootfs")]),
            |s| s.runtimes[0].server = Lookup::NotFound,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut ages = Inventory::default();
            ages.note(&sample::dead_bundle(), Look::Clean, at(10));
            let mut other = sample::dead_bundle();
            change(&mut other);
            assert_eq!(ages.note(&other, Look::Clean, at(20)).looks, 1, "{number}");
        }
        let mut ages = Inventory::default();
        ages.note(&sample::dead_bundle(), Look::Clean, at(10));
        let mut fewer = sample::dead_bundle();
        fewer.mounts = Lookup::Found(vec![sample::mount(77, "rootfs")]);
        assert_eq!(ages.note(&fewer, Look::Clean, at(20)).looks, 2);
    }
}
