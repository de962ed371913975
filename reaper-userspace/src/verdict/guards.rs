//! The veto table: each row names a guard and finds the reasons it holds.
//!
//! A row is a pure function of one [`Case`]; several reasons of one guard are several vetoes. The rows of time
//! stand apart in [`too_young`], because they need a history.

use crate::fact::{
    BundleFact, Ownership, ProcessFact, RuntimeAnswer, RuntimeProcess, RuntimeRole, ShimAnswer, Sighting,
    Subject, TaskStatus,
};
use crate::ident::{CgroupPath, ContainerKey, Lookup};
use crate::inventory::History;
use crate::leak::{Guard, LeakKind};
use crate::policy::Policy;
use crate::time::BootTime;

use super::{Freshness, Veto};

/// What the rows look at.
#[derive(Debug)]
pub struct Case<'a, S = Sighting> {
    /// The facts.
    pub sighting: &'a S,
    /// The kind that the facts have the shape of.
    pub kind: LeakKind,
    /// The operator's policy.
    pub policy: &'a Policy,
    /// Whether events were lost.
    pub freshness: &'a Freshness,
}

/// One row of the table.
#[derive(Debug)]
pub struct Rule<S = Sighting> {
    /// The guard that the row is about.
    pub guard: Guard,
    /// The condition in words, for `explain` and the documentation.
    pub means: &'static str,
    /// Finds the reasons; empty when the guard does not hold.
    pub finds: fn(&Case<'_, S>) -> Vec<String>,
}

/// Goes through a table.
pub(super) fn vetoes<S>(rules: &[Rule<S>], case: &Case<'_, S>) -> Vec<Veto> {
    let of_rule = |rule: &Rule<S>| {
        let guard = rule.guard;
        (rule.finds)(case).into_iter().map(move |detail| Veto::new(guard, detail))
    };
    rules.iter().flat_map(of_rule).collect()
}

/// Every guard that one look at a container's cgroup can show, in the order they are reported.
pub const RULES: &[Rule] = &[
    Rule {
        guard: Guard::SourceUnavailable,
        means: "every question must have an answer; an error is not an absence",
        finds: source_unavailable,
    },
    Rule {
        guard: Guard::KnownToRuntime,
        means: "no containerd, shim or other container's record may own it",
        finds: known_to_runtime,
    },
    Rule { guard: Guard::InFlight, means: "no runtime command for it may be running", finds: in_flight },
    Rule {
        guard: Guard::LiveInit,
        means: "a living init is only a leak when no shim, task or record knows it",
        finds: live_init,
    },
    Rule {
        guard: Guard::RecordPresent,
        means: "with the record still there and init not proven dead, its owner may act",
        finds: record_present,
    },
    Rule { guard: Guard::EventGap, means: "no kernel event may have been missed", finds: event_gap },
    Rule {
        guard: Guard::IdentityChanged,
        means: "the bundle must name this very cgroup",
        finds: identity_changed,
    },
    Rule {
        guard: Guard::NoProvenance,
        means: "a bundle, a record or our own earlier sight must tie the cgroup to the container",
        finds: no_provenance,
    },
    Rule {
        guard: Guard::Foreign,
        means: "it must not be another manager's, nor a member's ancestor be alive that is none of the runtime's",
        finds: foreign,
    },
    Rule {
        guard: Guard::Protected,
        means: "slices, services, roots and protected names stay",
        finds: protected,
    },
    Rule { guard: Guard::ShimInside, means: "no shim may live inside", finds: shim_inside },
    Rule {
        guard: Guard::SelfInside,
        means: "neither we nor PID 1, a containerd, a kubelet or a kernel thread may be inside",
        finds: self_inside,
    },
    Rule {
        guard: Guard::StrayMember,
        means: "every member must be listed in the hierarchy that the kill goes through",
        finds: stray_member,
    },
];

/// Who owns it, if somebody says so explicitly: then it is live, whatever it looks like.
pub(super) fn owner<S: Subject>(sighting: &S) -> Option<String> {
    let by_runtime = sighting.runtimes().iter().find_map(|runtime| {
        runtime.task.found().map(|status| format!("task {} at {}", status_word(*status), runtime.address))
    });
    let by_shim = || {
        sighting.shims().iter().find_map(|shim| {
            let status = shim.task.found()?;
            // A registered task outweighs everything else, except one that is merely waiting to be deleted by a
            // client that never will: containerd's own answer decides on those.
            Some(format!("shim {} has the task, {}", shim.process.tgid, status_word(*status)))
        })
    };
    by_runtime.or_else(by_shim)
}

const fn status_word(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Unknown => "in an unknown state",
        TaskStatus::Created => "created",
        TaskStatus::Running => "running",
        TaskStatus::Stopped => "stopped",
        TaskStatus::Paused => "paused",
        TaskStatus::Pausing => "pausing",
    }
}

fn source_unavailable(case: &Case<'_>) -> Vec<String> {
    let sighting = case.sighting;
    let mut reasons: Vec<String> = sighting.unreadable.clone();
    reasons.extend(unanswered(&sighting.runtimes, &sighting.shims));
    let mut note = |reason: Option<&String>| reasons.extend(reason.cloned());
    for tree in &sighting.trees {
        note(tree.unanswered());
    }
    note(sighting.bundle.unavailable());
    note(sighting.runc_state.unavailable());
    note(sighting.mounts.unavailable());
    note(sighting.holds_self.unavailable());
    if let Lookup::Found(state) = &sighting.runc_state {
        note(state.init_alive.unavailable());
    }
    if let Lookup::Found(bundle) = &sighting.bundle {
        note(bundle.progress.unavailable());
        note(bundle.init_pid.unavailable());
    }
    reasons.sort();
    reasons.dedup();
    reasons
}

/// Every question to a containerd or a shim that got no answer.
pub(super) fn unanswered(runtimes: &[RuntimeAnswer], shims: &[ShimAnswer]) -> Vec<String> {
    let mut reasons = vec![];
    if runtimes.iter().all(|runtime| runtime.ownership == Ownership::Foreign) {
        reasons.push("no containerd of ours was asked".to_owned());
    }
    let mut note = |reason: Option<&String>| reasons.extend(reason.cloned());
    for runtime in runtimes {
        note(runtime.server.unavailable());
        note(runtime.task.unavailable());
        note(runtime.record.unavailable());
        note(runtime.overlapping.unavailable());
    }
    for shim in shims {
        note(shim.task.unavailable());
    }
    reasons
}

fn known_to_runtime(case: &Case<'_>) -> Vec<String> {
    let mut reasons: Vec<String> = owner(case.sighting).into_iter().collect();
    for runtime in &case.sighting.runtimes {
        for other in runtime.overlapping.found().into_iter().flatten() {
            reasons.push(format!("the record of {other} at {} names this cgroup too", runtime.address));
        }
    }
    for supervisor in &case.sighting.supervisors {
        let is_shim = matches!(supervisor.role, RuntimeRole::Shim { .. });
        let denied =
            |key| case.sighting.shims.iter().any(|shim| shim.process == key && shim.task.is_not_found());
        if is_shim && !denied(supervisor.process.key) {
            reasons.push(format!("shim {} is an ancestor of a member", supervisor.process.key.tgid));
        }
    }
    reasons
}

fn in_flight(case: &Case<'_>) -> Vec<String> {
    let commands = case.sighting.supervisors.iter().filter(|s| matches!(s.role, RuntimeRole::Command { .. }));
    running(case.sighting.in_flight.iter().chain(commands))
}

/// The commands among these processes, in words.
pub(super) fn running<'a, I: Iterator<Item = &'a RuntimeProcess>>(processes: I) -> Vec<String> {
    processes
        .filter_map(|process| match &process.role {
            RuntimeRole::Command { verb } => Some(format!(
                "{} {verb} (pid {}) is running",
                process.process.comm.escape_debug(),
                process.process.key.tgid
            )),
            RuntimeRole::Shim { .. } => None,
        })
        .collect()
}

fn live_init(case: &Case<'_>) -> Vec<String> {
    let recorded = match &case.sighting.runc_state {
        Lookup::Found(state) if state.init_alive == Lookup::Found(true) => state.init,
        Lookup::Found(_) | Lookup::NotFound | Lookup::Unavailable(_) => None,
    };
    match recorded {
        Some(init) if !disowned(case.sighting) => vec![format!("init {} is alive", init.tgid)],
        Some(_) | None => vec![],
    }
}

/// Every containerd says that neither task nor record exists, and no shim knows it.
fn disowned(sighting: &Sighting) -> bool {
    let no_record = sighting.runtimes.iter().all(|r| r.record.is_not_found() && r.task.is_not_found());
    no_record && sighting.shims.iter().all(|shim| shim.task.is_not_found())
}

fn record_present(case: &Case<'_>) -> Vec<String> {
    let init_dead = matches!(&case.sighting.runc_state, Lookup::Found(state)
        if state.init.is_some() && state.init_alive == Lookup::Found(false));
    if case.kind != LeakKind::Orphaned || init_dead {
        return vec![];
    }
    case.sighting
        .runtimes
        .iter()
        .filter(|runtime| runtime.record.found().is_some())
        .map(|runtime| {
            let has = if runtime.server.is_not_found() { "may have" } else { "has" };
            format!("{} {has} the container's record, and init is not proven dead", runtime.address)
        })
        .collect()
}

pub(super) fn event_gap<S>(case: &Case<'_, S>) -> Vec<String> {
    match case.freshness {
        Freshness::Fresh => vec![],
        Freshness::Stale(missed) => vec![missed.clone()],
    }
}

fn identity_changed(case: &Case<'_>) -> Vec<String> {
    let Lookup::Found(bundle) = &case.sighting.bundle else { return vec![] };
    match &bundle.cgroup {
        Lookup::Found(named) if *named != case.sighting.cgroup => {
            vec![format!("the bundle names {named} instead")]
        }
        Lookup::Found(_) | Lookup::NotFound => vec![],
        Lookup::Unavailable(reason) => vec![format!("the bundle's cgroup is not known: {reason}")],
    }
}

fn no_provenance(case: &Case<'_>) -> Vec<String> {
    use crate::fact::Provenance;
    match &case.sighting.provenance {
        Provenance::Bundle { .. } | Provenance::Record { .. } => vec![],
        Provenance::Seen { cgroups } => case
            .sighting
            .trees
            .iter()
            .filter_map(|tree| tree.root())
            .filter(|root| !cgroups.contains(&root.cgroup))
            .map(|root| format!("{} is not the cgroup that was seen there", root.path))
            .collect(),
    }
}

fn foreign(case: &Case<'_>) -> Vec<String> {
    let sighting = case.sighting;
    let mut reasons = vec![];
    if let Some(component) =
        sighting.cgroup.components().find(|name| is_foreign_name(&name.to_string_lossy()))
    {
        reasons.push(format!("{} belongs to another manager", component.to_string_lossy().escape_debug()));
    }
    if let Some(outer) = &sighting.enclosed_by {
        reasons.push(format!("it is, encloses or lies inside the cgroup of container {outer}"));
    }
    for runtime in &sighting.runtimes {
        if runtime.ownership == Ownership::Foreign && runtime.record.found().is_some() {
            reasons.push(format!("{} has a record of it and is not ours", runtime.address));
        }
    }
    let owners = sighting.owners.iter().map(|owner| {
        format!("{} (pid {}) is a living ancestor of a member", owner.comm.escape_debug(), owner.key.tgid)
    });
    reasons.extend(owners);
    reasons
}

/// Names that CRI-O, podman, LXC, systemd-nspawn and user managers give.
fn is_foreign_name(name: &str) -> bool {
    const PREFIXES: [&str; 7] = ["crio-", "libpod-", "libpod_", "conmon", "lxc.", "machine-", "user@"];
    const NAMES: [&str; 2] = ["user.slice", "machine.slice"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn protected(case: &Case<'_>) -> Vec<String> {
    let mut reasons: Vec<String> =
        unfit_place(&case.sighting.cgroup).map(str::to_owned).into_iter().collect();
    let sighting = case.sighting;
    reasons.extend(protected_by_rule(&sighting.container, Some(&sighting.cgroup), case.policy));
    reasons.extend(asks(sighting.bundle.found(), &sighting.runtimes));
    reasons
}

/// The operator's own rules.
pub(super) fn protected_by_rule(
    key: &ContainerKey,
    cgroup: Option<&CgroupPath>,
    policy: &Policy,
) -> Vec<String> {
    let mut reasons = vec![];
    if policy.protect_ids.contains(&key.id) {
        reasons.push(format!("id {} is protected by policy", key.id));
    }
    if policy.protect_namespaces.contains(&key.namespace) {
        reasons.push(format!("namespace {} is protected by policy", key.namespace));
    }
    for path in cgroup.into_iter().map(CgroupPath::as_path) {
        let patterns = policy.protect_paths.iter().filter(|pattern| pattern.covers(path));
        reasons.extend(patterns.map(|pattern| format!("path {pattern} is protected by policy")));
    }
    reasons
}

/// Whether whoever runs the container asked that it is never touched.
pub(super) fn asks(bundle: Option<&BundleFact>, runtimes: &[RuntimeAnswer]) -> Option<String> {
    let asked =
        bundle.is_some_and(|bundle| bundle.protected) || runtimes.iter().any(|runtime| runtime.protected);
    asked.then(|| "its annotation cgroup-reaper.io/protect asks for it".to_owned())
}

/// Places that are never one container's own leaf. Depth 1 is refused as well: `/docker`, `/kubepods`,
/// `/system.slice` hold everybody's.
fn unfit_place(path: &CgroupPath) -> Option<&'static str> {
    let Some(name) = path.name() else { return Some("it is the root of the hierarchy") };
    let name = name.to_string_lossy();
    if path.depth() < 2 {
        return Some("it lies directly below the root");
    }
    if name.ends_with(".slice") || name.ends_with(".service") {
        return Some("it is a slice or a service, not a container's cgroup");
    }
    let pod = name.strip_prefix("pod").is_some_and(|uid| uid.len() >= 32);
    pod.then_some("it is a pod's cgroup, which belongs to the kubelet")
}

fn shim_inside(case: &Case<'_>) -> Vec<String> {
    inside(case, is_shim)
}

fn self_inside(case: &Case<'_>) -> Vec<String> {
    let mut reasons = inside(case, |process| !is_shim(process));
    if case.sighting.holds_self == Lookup::Found(true) {
        reasons.push("this program runs inside it".to_owned());
    }
    reasons
}

fn is_shim(process: &ProcessFact) -> bool {
    let program = process.argv.first().map_or("", |word| word.rsplit('/').next().unwrap_or_default());
    program.starts_with("containerd-shim")
}

fn inside(case: &Case<'_>, which: impl Fn(&ProcessFact) -> bool) -> Vec<String> {
    case.sighting
        .protected_members
        .iter()
        .filter(|process| which(process))
        .map(|process| format!("{} (pid {}) is a member", process.comm.escape_debug(), process.key.tgid))
        .collect()
}

fn stray_member(case: &Case<'_>) -> Vec<String> {
    case.sighting
        .stray_members()
        .map(|process| {
            format!(
                "{} (pid {}) is a member in some hierarchy but not in the one that kills",
                process.comm.escape_debug(),
                process.key.tgid
            )
        })
        .collect()
}

/// What only time lifts: quiet for the grace, the runtime serving for the grace, two looks apart.
pub(super) fn too_young<S: Subject>(
    sighting: &S,
    history: &History,
    policy: &Policy,
    now: BootTime,
) -> Vec<Veto> {
    let mut vetoes = vec![];
    let mut wait = |until: BootTime, detail: String| {
        if until > now {
            vetoes.push(Veto { guard: Guard::TooYoung, detail, ready_at: Some(until) });
        }
    };
    let Some(clean_since) = history.clean_since else {
        // Other guards hold, or held until this look: the clock starts when the last of them lets go.
        wait(now.after(policy.grace.max(policy.look_gap)), "not leak-shaped for long enough".to_owned());
        return vetoes;
    };
    let grace = policy.grace;
    wait(clean_since.after(grace), format!("leak-shaped for {:.1?} of {grace:?}", now.since(clean_since)));
    wait(clean_since.after(policy.look_gap), "a second look is needed".to_owned());
    for runtime in sighting.runtimes().iter().filter(|runtime| runtime.ownership == Ownership::Ours) {
        if let Lookup::Found(server) = &runtime.server {
            let started = BootTime::from_nanos(server.process.start.boot_nanos());
            wait(
                started.after(grace),
                format!("{} has been serving for less than {grace:?}", runtime.address),
            );
        }
    }
    if history.looks < 2 {
        wait(now.after(policy.look_gap), "a second look is needed".to_owned());
    }
    vetoes
}
