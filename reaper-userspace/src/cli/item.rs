//! One leak as others see it: the items of `scan -o json`, kept stable as `reaper/v1`.

use std::path::Path;

use serde::Serialize;

use crate::daemon::clock;
use crate::daemon::engine::{Judged, Round};
use crate::daemon::holds::{Hold, Holds};
use crate::fact::{
    BundleSighting, MisplacedSighting, ProcessState, Sighting, Subject, TaskStatus, UnitSighting,
};
use crate::ident::{CgroupPath, CgroupRef, LeakId};
use crate::leak::{Cause, Guard, HoldKind, LeakKind, LeakState};
use crate::plan::{ReapPlan, Reapable};
use crate::verdict::{Evidence, Judge, Verdict, Veto};

/// `scan -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeakList<'a> {
    api_version: &'static str,
    kind: &'static str,
    generated_at: jiff::Timestamp,
    summary: Summary,
    items: &'a [Item],
    problems: &'a [String],
    holds: &'a [HoldLine],
}

/// What keeps a whole daemon, or `reap`, from acting.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HoldLine {
    pub(super) kind: HoldKind,
    #[serde(flatten)]
    pub(super) hold: Hold,
}

/// Counts over the whole node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) confirmed: usize,
    pub(super) suspected: usize,
    pub(super) protected: usize,
    pub(super) live: usize,
    pub(super) shims: usize,
    pub(super) runtime_tasks: usize,
}

/// One leak.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    pub(super) id: LeakId,
    pub(super) kind: LeakKind,
    pub(super) state: LeakState,
    pub(super) cause: Cause,
    pub(super) since: jiff::Timestamp,
    pub(super) target: Target,
    pub(super) frozen: bool,
    pub(super) processes: Vec<Process>,
    pub(super) evidence: Vec<Evidence>,
    pub(super) guards: Vec<GuardLine>,
    pub(super) plan: Vec<&'static str>,
}

/// What leaked, by every name it has.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cgroup_id: Option<u64>,
    cgroups: Vec<CgroupRef>,
    pub(super) path: String,
    pub(super) container_id: String,
    pub(super) runtime_namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Process {
    pub(super) pid: u32,
    start_time: u64,
    pub(super) comm: String,
    state: ProcessState,
}

/// A subject as people see it.
pub(super) trait Shown: Judge + Reapable {
    /// What and whose it is.
    fn head(&self) -> String;

    /// By every name it has.
    fn target(&self) -> Target {
        Target::of(self)
    }

    /// Whether its processes are held by a freezer.
    fn is_held_frozen(&self) -> bool {
        false
    }
}

/// One row of the table of guards.
#[derive(Debug, Serialize)]
pub(super) struct GuardLine {
    pub(super) name: Guard,
    pub(super) verdict: Ruling,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) reasons: Vec<String>,
}

/// Whether a guard holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ruling {
    Pass,
    Hold,
}

// === impl HoldLine ===

impl HoldLine {
    /// Those of this state directory that hold now.
    pub(super) fn all(state_dir: &Path) -> Vec<Self> {
        let holds = Holds::new(state_dir).in_force(clock::wall());
        holds.into_iter().map(|(kind, hold)| Self { kind, hold }).collect()
    }
}

impl std::fmt::Display for HoldLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "held, {}: {}", self.kind, self.hold)
    }
}

// === impl LeakList ===

impl<'a> LeakList<'a> {
    pub(super) fn new(round: &'a Round, items: &'a [Item], holds: &'a [HoldLine]) -> Self {
        Self {
            api_version: "reaper/v1",
            kind: "LeakList",
            generated_at: clock::wall(),
            summary: Summary::of(round, items),
            items,
            problems: &round.look.problems,
            holds,
        }
    }
}

// === impl Summary ===

impl Summary {
    pub(super) fn of(round: &Round, items: &[Item]) -> Self {
        let count = |state| items.iter().filter(|item| item.state == state).count();
        // What is judged and no item is in use; an item of another sort is no container.
        let in_use = |verdict: &Verdict| matches!(verdict, Verdict::Live(_));
        let examined = round.judged.iter().filter(|judged| in_use(&judged.verdict)).count();
        Self {
            confirmed: count(LeakState::Confirmed),
            suspected: count(LeakState::Suspected),
            protected: count(LeakState::Protected),
            live: round.look.live.len().saturating_add(examined),
            shims: round.look.shims.len(),
            runtime_tasks: round.look.live.len(),
        }
    }
}

// === impl Item ===

impl Item {
    /// Every leak of a round.
    pub(super) fn all(round: &Round) -> Vec<Self> {
        let containers = round.judged.iter().filter_map(Self::of);
        let others = round.bundles.iter().filter_map(Self::of).chain(round.units.iter().filter_map(Self::of));
        containers.chain(others).chain(round.misplaced.iter().filter_map(Self::of)).collect()
    }

    /// `None` for what is in use.
    pub(super) fn of<S: Shown>(judged: &Judged<S>) -> Option<Self> {
        let (kind, cause, state, evidence, vetoes, plan) = match &judged.verdict {
            Verdict::Live(_) => return None,
            Verdict::Held { kind, cause, state, evidence, vetoes } => {
                (*kind, *cause, *state, evidence.clone(), vetoes.as_slice(), vec![])
            }
            Verdict::Leaked(proof) => {
                let plan = ReapPlan::new((**proof).clone());
                let mut steps: Vec<&'static str> = plan.steps().iter().map(crate::plan::Step::op).collect();
                steps.dedup();
                let evidence = proof.evidence().to_vec();
                (proof.kind(), proof.cause(), LeakState::Confirmed, evidence, [].as_slice(), steps)
            }
        };
        let since = judged.history.clean_since.unwrap_or(judged.history.first_seen);
        Some(Self {
            id: judged.id.clone(),
            kind,
            state,
            cause,
            since: clock::wall_of(since),
            target: judged.sighting.target(),
            frozen: judged.sighting.is_held_frozen(),
            processes: judged.sighting.processes().iter().map(Process::of).collect(),
            evidence,
            guards: guard_lines::<S>(vetoes),
            plan,
        })
    }

    /// The first guard that holds, for the table.
    pub(super) fn held_by(&self) -> Option<&GuardLine> {
        self.guards.iter().find(|line| line.verdict == Ruling::Hold)
    }
}

fn guard_lines<S: Judge>(vetoes: &[Veto]) -> Vec<GuardLine> {
    let all = S::rules().into_iter().map(|(guard, _)| guard).chain([Guard::TooYoung]);
    all.map(|name| {
        let held = vetoes.iter().filter(|veto| veto.guard == name);
        let mut reasons: Vec<String> = held.map(|veto| veto.detail.clone()).collect();
        reasons.dedup();
        let verdict = if reasons.is_empty() { Ruling::Pass } else { Ruling::Hold };
        GuardLine { name, verdict, reasons }
    })
    .collect()
}

// === impl Sighting ===

impl Shown for Sighting {
    fn head(&self) -> String {
        format!("cgroup {}   container {}", self.cgroup, self.container)
    }

    fn target(&self) -> Target {
        let main = self.kill_tree().and_then(|tree| tree.root()).map(|node| node.cgroup);
        let name = self.cgroup.name().map(|name| name.to_string_lossy().into_owned());
        Target {
            cgroup_id: main.or_else(|| self.roots().into_iter().next()).map(|cgroup| cgroup.id.0),
            pod_uid: pod_uid(&self.cgroup),
            unit: name.filter(|name| is_scope(name)),
            ..Target::of(self)
        }
    }

    fn is_held_frozen(&self) -> bool {
        self.is_frozen()
    }
}

// === impl BundleSighting ===

impl Shown for BundleSighting {
    fn head(&self) -> String {
        format!("bundle {}   container {}", self.place(), self.bundle.key)
    }
}

// === impl UnitSighting ===

impl Shown for UnitSighting {
    fn head(&self) -> String {
        format!("unit {}   container {}", self.unit.name, self.container)
    }

    fn target(&self) -> Target {
        Target { unit: Some(self.unit.name.to_string()), ..Target::of(self) }
    }
}

// === impl MisplacedSighting ===

impl Shown for MisplacedSighting {
    fn head(&self) -> String {
        format!("container {}   named {}   runs in {}", self.container, self.named, self.place())
    }

    fn target(&self) -> Target {
        let name = self.named.name().map(|name| name.to_string_lossy().into_owned());
        Target { unit: name.filter(|name| is_scope(name)), ..Target::of(self) }
    }
}

// === impl Target ===

impl Target {
    fn of<S: Subject>(sighting: &S) -> Self {
        let container = sighting.container();
        Self {
            cgroup_id: None,
            cgroups: sighting.roots(),
            path: sighting.place(),
            container_id: container.id.to_string(),
            runtime_namespace: container.namespace.to_string(),
            pod_uid: None,
            unit: None,
        }
    }
}

/// systemd's unit names are case sensitive, unlike what a file extension suggests.
fn is_scope(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, suffix)| suffix == "scope")
}

/// The kubelet's names: `pod<uid>` with its cgroupfs driver, `kubepods-..-pod<uid with _>.slice` with systemd's.
fn pod_uid(path: &CgroupPath) -> Option<String> {
    const UID_LENGTH: usize = 36;
    path.components().find_map(|component| {
        let name = component.to_string_lossy();
        let name = name.strip_suffix(".slice").unwrap_or(&name);
        let uid = name.strip_prefix("pod").or_else(|| name.rsplit_once("-pod").map(|(_, uid)| uid))?;
        (uid.len() == UID_LENGTH).then(|| uid.replace('_', "-"))
    })
}

// === impl Process ===

impl Process {
    fn of(process: &crate::fact::ProcessFact) -> Self {
        Self {
            pid: process.key.tgid.get(),
            start_time: process.key.start.get(),
            comm: process.comm.clone(),
            state: process.state,
        }
    }
}

/// The word for a task's status.
pub(super) const fn status(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Unknown => "unknown",
        TaskStatus::Created => "created",
        TaskStatus::Running => "running",
        TaskStatus::Stopped => "stopped",
        TaskStatus::Paused => "paused",
        TaskStatus::Pausing => "pausing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_pods_uid_are_found() {
        let uid = "6d1c5b0e-30a5-4b6f-9a35-3f7b7d7f3a10";
        let escaped = uid.replace('-', "_");
        for path in [
            format!("/kubepods/burstable/pod{uid}/3f0c"),
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{escaped}.slice/c.scope"),
            format!("/kubepods.slice/kubepods-pod{escaped}.slice/c.scope"),
        ] {
            assert_eq!(
                pod_uid(&CgroupPath::try_from(path.as_str()).unwrap()).as_deref(),
                Some(uid),
                "{path}"
            );
        }
        assert_eq!(pod_uid(&CgroupPath::try_from("/default/podman").unwrap()), None);
    }
}
