//! One round: look, remember, judge.
//!
//! The engine owns the inventory. It is what `run`, `scan`, `explain` and `reap` have in common; it records nothing
//! and acts on nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::clock;
use super::creates::Creates;
use super::judge::Court;
pub use super::judge::Judged;
use super::memory::Memory;
use super::trace::{Recorder, Scope, Setting};
use crate::cgroupfs::Layout;
use crate::fact::{BundleSighting, EndedCommand, MisplacedSighting, Ownership, Seen, Sighting, UnitSighting};
use crate::ident::{ContainerKey, LeakId, Lookup};
use crate::inventory::{BundleIdentity, Inventory, MisplacedIdentity, UnitIdentity};
use crate::kernel::chain;
use crate::leak::Guard;
use crate::policy::{Census, Policy};
use crate::survey::{self, NotStopped, Survey};
use crate::time::BootTime;
use crate::verdict::{Freshness, Judge, LeakProof, Verdict, Veto};

/// A subject that can be looked at again by itself.
pub trait Seek: Judge {
    /// One look at the one of this container, asking everybody anew.
    fn seek(engine: &Engine, container: &ContainerKey) -> impl Future<Output = Lookup<Self>>;

    /// Where the ages of this sort are kept.
    fn ages(engine: &mut Engine) -> &mut Inventory<Self::Identity>;

    /// Keeps the looks for somebody else to judge, if they are recorded.
    fn record(_looks: &[Self], _engine: &mut Engine, _at: BootTime, _scope: Scope, _freshness: &Freshness) {}
}

/// What one round found.
#[derive(Debug)]
pub struct Round {
    /// When it began.
    pub at: BootTime,
    /// Everything that no containerd lists as a task, judged, in order of containers.
    pub judged: Vec<Judged>,
    /// Bundles with mounts and without a cgroup, judged, in order of containers.
    pub bundles: Vec<Judged<BundleSighting>>,
    /// Failed scopes, judged.
    pub units: Vec<Judged<UnitSighting>>,
    /// Live containers outside of their cgroups, in order.
    pub misplaced: Vec<Judged<MisplacedSighting>>,
    /// The rest of the look.
    pub look: survey::Look,
    /// Containers known before that have no cgroup any more.
    pub gone: Vec<ContainerKey>,
}

// === impl Round ===

impl Round {
    /// The short names of everything that was judged.
    pub fn ids(&self) -> BTreeSet<&LeakId> {
        let containers = self.judged.iter().map(|judged| &judged.id);
        let others =
            self.bundles.iter().map(|judged| &judged.id).chain(self.units.iter().map(|judged| &judged.id));
        containers.chain(others).chain(self.misplaced.iter().map(|judged| &judged.id)).collect()
    }

    /// When time alone would change a verdict.
    pub fn ready_at(&self) -> Option<BootTime> {
        let containers = self.judged.iter().filter_map(|judged| judged.verdict.ready_at());
        let bundles = self.bundles.iter().filter_map(|judged| judged.verdict.ready_at());
        containers
            .chain(bundles)
            .chain(self.units.iter().filter_map(|judged| judged.verdict.ready_at()))
            .min()
    }

    /// How many leaks are proven.
    pub fn confirmed(&self) -> usize {
        let containers = self.judged.iter().filter(|judged| judged.proof().is_some()).count();
        let bundles = self.bundles.iter().filter(|judged| judged.proof().is_some()).count();
        let units = self.units.iter().filter(|judged| judged.proof().is_some()).count();
        containers.saturating_add(bundles).saturating_add(units)
    }
}

/// Looks and judges.
#[derive(Debug)]
pub struct Engine {
    survey: Survey,
    policy: Policy,
    boot: String,
    inventory: Inventory,
    bundles: Inventory<BundleIdentity>,
    units: Inventory<UnitIdentity>,
    misplaced: Inventory<MisplacedIdentity>,
    seen: Vec<Seen>,
    recorder: Option<Recorder>,
    creates: Creates,
}

// === impl Round ===

impl Round {
    /// What the storm breaker looks at, with so many leaks that would be acted on.
    pub fn census(&self, confirmed: usize) -> Census {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let answers = self.judged.iter().flat_map(|judged| &judged.sighting.runtimes);
        let ours = answers.filter(|answer| answer.ownership == Ownership::Ours);
        let started = ours
            .filter_map(|answer| answer.server.found())
            .map(|server| BootTime::from_nanos(server.process.start.boot_nanos()));
        Census {
            confirmed: number(confirmed),
            containers: number(self.look.live.len().saturating_add(self.judged.len())),
            runtime_started: started.max(),
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Begins with what was remembered.
    pub fn new(survey: Survey, policy: Policy, memory: Memory) -> Self {
        let Memory { boot, seen, inventory, creates, bundles, units } = memory;
        let misplaced = Inventory::default();
        Self { survey, policy, boot, inventory, bundles, units, misplaced, seen, creates, recorder: None }
    }

    /// Records every look from now on.
    #[must_use]
    pub fn recording(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// The operator's policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The kernel's boot id.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// The cgroups that were seen as some container's.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// The mounted hierarchies.
    pub fn layout(&self) -> Arc<Layout> {
        self.survey.layout()
    }

    /// `Ok` if all our containerds are proven not to run.
    pub fn stopped(&self) -> Result<(), NotStopped> {
        self.survey.stopped()
    }

    /// What to keep for the next run.
    pub fn memory(&self) -> Memory {
        let (seen, inventory, creates) = (self.seen.clone(), self.inventory.clone(), self.creates.clone());
        let (bundles, units) = (self.bundles.clone(), self.units.clone());
        Memory { boot: self.boot.clone(), seen, inventory, creates, bundles, units }
    }

    /// Takes note of a runtime's command that was seen to end.
    pub fn note_command(&mut self, ended: EndedCommand) {
        self.creates.note(ended);
    }

    /// Looks at everything and judges it.
    pub async fn round(&mut self, freshness: &Freshness) -> Round {
        let at = clock::boot();
        let mut look = self.survey.look(&self.seen).await;
        self.seen = std::mem::take(&mut look.seen);
        let sightings =
            std::mem::take(&mut look.sightings).into_iter().map(|sighting| self.informed(sighting)).collect();
        let (bundles, units) = (std::mem::take(&mut look.bundles), std::mem::take(&mut look.units));
        let misplaced = std::mem::take(&mut look.misplaced);
        let judged = self.judge_all(sightings, freshness);
        let bundles = self.judge_all(bundles, freshness);
        let gone = self.forget(&judged);
        self.forget(&bundles);
        let units = self.judge_all(units, freshness);
        self.forget(&units);
        let misplaced = self.judge_all(misplaced, freshness);
        self.forget(&misplaced);
        Round { at, judged, bundles, units, misplaced, look, gone }
    }

    /// Looks at one subject again, directly before an act.
    pub async fn recheck<S: Seek>(
        &mut self,
        container: &ContainerKey,
        freshness: &Freshness,
    ) -> Result<LeakProof<S>, Veto> {
        let veto = |guard, detail| Veto { guard, detail, ready_at: None };
        let sighting = match S::seek(self, container).await {
            Lookup::Found(sighting) => sighting,
            Lookup::NotFound => {
                return Err(veto(Guard::IdentityChanged, "what was planned for is gone".to_owned()));
            }
            Lookup::Unavailable(reason) => return Err(veto(Guard::SourceUnavailable, reason)),
        };
        let now = clock::boot();
        S::record(std::slice::from_ref(&sighting), self, now, Scope::Recheck, freshness);
        match self.judge(sighting, freshness, now).verdict {
            Verdict::Leaked(proof) => Ok(*proof),
            Verdict::Live(owner) => Err(veto(Guard::KnownToRuntime, owner)),
            Verdict::Held { vetoes, .. } => Err(vetoes.into_iter().next().unwrap_or_else(|| {
                veto(Guard::SourceUnavailable, "held for a reason that was not given".to_owned())
            })),
        }
    }

    /// Adds what only events tell.
    fn informed(&self, sighting: Sighting) -> Sighting {
        let failed_create = self.creates.failed(&sighting.container).cloned();
        Sighting { failed_create, ..sighting }
    }

    fn judge_all<S: Seek>(&mut self, sightings: Vec<S>, freshness: &Freshness) -> Vec<Judged<S>> {
        let now = clock::boot();
        S::record(&sightings, self, now, Scope::Node, freshness);
        sightings.into_iter().map(|sighting| self.judge(sighting, freshness, now)).collect()
    }

    fn forget<S: Seek>(&mut self, judged: &[Judged<S>]) -> Vec<ContainerKey> {
        S::ages(self).retain(|key| judged.iter().any(|one| one.sighting.container() == key))
    }

    fn judge<S: Seek>(&mut self, sighting: S, freshness: &Freshness, now: BootTime) -> Judged<S> {
        let policy = self.policy.clone();
        Court { policy: &policy, freshness, now }.judge(S::ages(self), sighting)
    }
}

impl Seek for Sighting {
    async fn seek(engine: &Engine, container: &ContainerKey) -> Lookup<Self> {
        engine.survey.look_at(container, &engine.seen).await.map(|sighting| engine.informed(sighting))
    }

    fn ages(engine: &mut Engine) -> &mut Inventory {
        &mut engine.inventory
    }

    fn record(looks: &[Self], engine: &mut Engine, at: BootTime, scope: Scope, freshness: &Freshness) {
        let Some(recorder) = &mut engine.recorder else { return };
        let setting = Setting { at, scope, freshness, policy: &engine.policy };
        if let Err(error) = recorder.add(&setting, &engine.inventory, looks) {
            tracing::warn!(error = chain(&error), "the recording ends here, the work goes on");
            engine.recorder = None;
        }
    }
}

impl Seek for BundleSighting {
    async fn seek(engine: &Engine, container: &ContainerKey) -> Lookup<Self> {
        engine.survey.look_at_bundle(container, &engine.seen).await
    }

    fn ages(engine: &mut Engine) -> &mut Inventory<BundleIdentity> {
        &mut engine.bundles
    }
}

impl Seek for UnitSighting {
    async fn seek(engine: &Engine, container: &ContainerKey) -> Lookup<Self> {
        engine.survey.look_at_unit(container, &engine.seen).await
    }

    fn ages(engine: &mut Engine) -> &mut Inventory<UnitIdentity> {
        &mut engine.units
    }
}

impl Seek for MisplacedSighting {
    /// Nothing is done about it, so nobody looks again before anything.
    async fn seek(_engine: &Engine, container: &ContainerKey) -> Lookup<Self> {
        Lookup::Unavailable(format!("{container} lives and is reported only"))
    }

    fn ages(engine: &mut Engine) -> &mut Inventory<MisplacedIdentity> {
        &mut engine.misplaced
    }
}
