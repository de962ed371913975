//! One round: look, remember, judge.
//!
//! The engine owns the inventory. It is what `run`, `scan`, `explain` and `reap` have in common; it records nothing
//! and acts on nothing.

use std::sync::Arc;

use super::clock;
use super::creates::Creates;
use super::judge::Court;
pub use super::judge::Judged;
use super::memory::Memory;
use super::trace::{Recorder, Scope, Setting};
use crate::cgroupfs::Layout;
use crate::fact::{EndedCommand, Seen, Sighting};
use crate::ident::{ContainerKey, Lookup};
use crate::inventory::Inventory;
use crate::kernel::chain;
use crate::leak::Guard;
use crate::policy::Policy;
use crate::survey::{self, Survey};
use crate::time::BootTime;
use crate::verdict::{Freshness, LeakProof, Verdict, Veto};

/// What one round found.
#[derive(Debug)]
pub struct Round {
    /// When it began.
    pub at: BootTime,
    /// Everything that no containerd lists as a task, judged, in order of containers.
    pub judged: Vec<Judged>,
    /// The rest of the look.
    pub look: survey::Look,
    /// Containers known before that have no cgroup any more.
    pub gone: Vec<ContainerKey>,
}

/// Looks and judges.
#[derive(Debug)]
pub struct Engine {
    survey: Survey,
    policy: Policy,
    boot: String,
    inventory: Inventory,
    seen: Vec<Seen>,
    recorder: Option<Recorder>,
    creates: Creates,
}

// === impl Engine ===

impl Engine {
    /// Begins with what was remembered.
    pub fn new(survey: Survey, policy: Policy, memory: Memory) -> Self {
        let Memory { boot, seen, inventory, creates } = memory;
        Self { survey, policy, boot, inventory, seen, creates, recorder: None }
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

    /// What to keep for the next run.
    pub fn memory(&self) -> Memory {
        let (seen, inventory, creates) = (self.seen.clone(), self.inventory.clone(), self.creates.clone());
        Memory { boot: self.boot.clone(), seen, inventory, creates }
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
        let sightings: Vec<Sighting> =
            std::mem::take(&mut look.sightings).into_iter().map(|sighting| self.informed(sighting)).collect();
        let now = clock::boot();
        self.record(&sightings, now, Scope::Node, freshness);
        let judged: Vec<Judged> =
            sightings.into_iter().map(|sighting| self.judge(sighting, freshness, now)).collect();
        let gone = self.inventory.retain(|key| judged.iter().any(|one| one.sighting.container == *key));
        Round { at, judged, look, gone }
    }

    /// Looks at one container again, directly before an act.
    pub async fn recheck(
        &mut self,
        container: &ContainerKey,
        freshness: &Freshness,
    ) -> Result<LeakProof, Veto> {
        let veto = |guard, detail| Veto { guard, detail, ready_at: None };
        let sighting = match self.survey.look_at(container, &self.seen).await {
            Lookup::Found(sighting) => self.informed(sighting),
            Lookup::NotFound => {
                return Err(veto(Guard::IdentityChanged, "its cgroup is gone".to_owned()));
            }
            Lookup::Unavailable(reason) => return Err(veto(Guard::SourceUnavailable, reason)),
        };
        let now = clock::boot();
        self.record(std::slice::from_ref(&sighting), now, Scope::Recheck, freshness);
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

    fn judge(&mut self, sighting: Sighting, freshness: &Freshness, now: BootTime) -> Judged {
        Court { policy: &self.policy, freshness, now }.judge(&mut self.inventory, sighting)
    }

    fn record(&mut self, sightings: &[Sighting], at: BootTime, scope: Scope, freshness: &Freshness) {
        let Some(recorder) = &mut self.recorder else { return };
        let setting = Setting { at, scope, freshness, policy: &self.policy };
        if let Err(error) = recorder.add(&setting, &self.inventory, sightings) {
            tracing::warn!(error = chain(&error), "the recording ends here, the work goes on");
            self.recorder = None;
        }
    }
}
