//! The veto table of dead bundles.
//!
//! A bundle is dead when its shim, its task and its cgroup are gone, and only mounts at its rootfs are left. Taking
//! those away is what containerd itself tries at every start (`core/runtime/v2/bundle.go:Delete`): a process that
//! still uses one keeps it, because nothing is ever detached lazily.

use super::guards::{Case, Rule, event_gap, owner, protected_by_policy, running, unanswered, vetoes};
use super::{Assessment, Evidence, Freshness, Judge, evidence};
use crate::fact::{BundleSighting, CreateProgress, Subject as _};
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
    Rule {
        guard: Guard::Protected,
        means: "protected names stay",
        finds: |case| protected_by_policy(case.sighting.container(), case.policy),
    },
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
