//! What follows a round: records, refusals, and acts within budget; and the retries of what is stuck.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::act::{Acted, Unrecorded, carry_out, wait_for_others};
use super::brakes::{Brakes, Braking, Changes};
use super::bystander::Watchman;
use super::engine::{Engine, Judged, Round, Seek};
use super::hints::Hints;
use super::holds::Hold;
use super::ledger::Ledger;
use super::report::{self, States};
use super::service::Settings;
use super::{clock, records};
use crate::audit::{Node, Trigger};
use crate::fact::Subject;
use crate::ident::{LeakId, ProcessKey};
use crate::kernel::chain;
use crate::leak::{Guard, HoldKind, KillMethod, LeakKind, LeakState, Outcome};
use crate::metrics::{ClearedBy, Metrics, ReapStep, RecordType, Word as _};
use crate::plan::{ReapPlan, Standing, permit};
use crate::policy::{Mode, Policy};
use crate::reap::{Reap, Report};
use crate::time::BootTime;
use crate::verdict::{LeakProof, Verdict, Veto};

const MINUTE: Duration = Duration::from_mins(1);
/// First wait before something stuck is tried again; doubled each time.
const FIRST_RETRY: Duration = Duration::from_secs(30);
const LONGEST_RETRY: Duration = Duration::from_hours(1);

/// Something that could not be ended.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    tries: u32,
    until: BootTime,
}

/// How a one-shot run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// A containerd that gave no answer to the last look, and why: what it knows nobody could judge.
    pub unanswered: Option<String>,
    /// Reaps that ended everything.
    pub reaped: usize,
    /// Reaps that did not.
    pub failed: usize,
    /// Confirmed leaks that are still there.
    pub left: usize,
}

/// Everything that acting needs to remember.
#[derive(Debug)]
pub(super) struct Reaping {
    ledger: Ledger,
    brakes: Brakes,
    watchman: Watchman,
    state_dir: PathBuf,
    metrics: Metrics,
    states: States,
    began: BTreeMap<LeakId, BootTime>,
    stuck: BTreeMap<LeakId, Stuck>,
    refused: BTreeMap<LeakId, Guard>,
    reaped: BTreeMap<LeakId, LeakKind>,
    recent: VecDeque<BootTime>,
    /// When what keeps from acting passes by itself.
    resume_at: Option<BootTime>,
    tally: Tally,
}

// === impl Reaping ===

impl Reaping {
    /// Opens the audit log and closes what an earlier run left open in it. Without a log there is nothing to start
    /// in enforce mode; observing goes on without one.
    pub(super) fn start(
        engine: &Engine,
        settings: &Settings,
        locked: bool,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let brakes = Brakes::new(&settings.state_dir, engine.policy().mode, !locked);
        let node = Node { boot: engine.boot().to_owned(), name: settings.node.clone() };
        let mut reaping = Self {
            ledger: Ledger::new(settings.audit_log.clone(), node, metrics.clone()),
            brakes,
            watchman: Watchman::default(),
            state_dir: settings.state_dir.clone(),
            metrics,
            states: States::new(),
            began: BTreeMap::new(),
            stuck: BTreeMap::new(),
            refused: BTreeMap::new(),
            reaped: BTreeMap::new(),
            recent: VecDeque::new(),
            resume_at: None,
            tally: Tally::default(),
        };
        match reaping.ledger.begin(engine) {
            Ok(()) => {}
            Err(error) if engine.policy().mode == Mode::Observe || !locked => {
                tracing::warn!(error = %chain(&error), "observing without an audit log");
            }
            Err(error) => return Err(error).context("nothing is reaped without an audit log"),
        }
        Ok(reaping)
    }

    /// The lock is ours now: acts as one that was first. Without an audit log it goes on observing.
    pub(super) fn resume(&mut self) {
        tracing::info!("the other cgroup-reaper has ended");
        self.brakes.take_over();
    }

    /// Each leak's kind and state.
    pub(super) const fn states(&self) -> &States {
        &self.states
    }

    /// Why the audit log takes no records, if it does not.
    pub(super) fn audit_down(&self) -> Option<&str> {
        self.ledger.down()
    }

    /// When something here is tried again.
    pub(super) fn retry_at(&self) -> Option<BootTime> {
        self.ledger.retry_at().into_iter().chain(self.resume_at).min()
    }

    /// Notes what changed, then acts on what is permitted; returns the number of acts.
    pub(super) async fn sweep(
        &mut self,
        engine: &mut Engine,
        hints: &mut Hints,
        round: &Round,
        hinted: Option<BootTime>,
    ) -> usize {
        self.ledger.retry(engine);
        self.note_changes(&round.judged, hinted);
        self.note_changes(&round.bundles, hinted);
        self.note_changes(&round.units, hinted);
        self.note_changes(&round.misplaced, hinted);
        self.forget(round, &in_use(engine, round));
        let (containers, bundles) = (self.due_proofs(&round.judged), self.due_proofs(&round.bundles));
        let units = self.due_proofs(&round.units);
        let due = containers.len().saturating_add(bundles.len()).saturating_add(units.len());
        let braking = self.brake(engine.policy(), round, due);
        let standing = self.standing(&braking, 0);
        let acts = self.reap(engine, hints, containers, &standing).await;
        // A bundle is dead only when its cgroup is gone, so these are others.
        let standing = self.standing(&braking, acts);
        let acts = acts.saturating_add(self.reap(engine, hints, bundles, &standing).await);
        let standing = self.standing(&braking, acts);
        acts.saturating_add(self.reap(engine, hints, units, &standing).await)
    }

    async fn reap<S: Seek + Reap>(
        &mut self,
        engine: &mut Engine,
        hints: &mut Hints,
        proofs: Vec<LeakProof<S>>,
        standing: &Standing,
    ) -> usize {
        let sweep = permit(proofs, engine.policy(), standing);
        for refusal in &sweep.refused {
            self.note_refusal(&refusal.plan, &refusal.veto);
        }
        let acts = sweep.permitted.len();
        for plan in sweep.permitted {
            self.act(engine, hints, plan).await;
        }
        acts
    }

    /// Looks at what may keep from acting, and says what changed.
    fn brake(&mut self, policy: &Policy, round: &Round, confirmed: usize) -> Braking {
        let before = self.brakes.in_force().clone();
        let braking = self.brakes.check(&policy.budget, &round.census(confirmed));
        self.resume_at = braking.until;
        let Changes { begun, ended } = self.brakes.changes(&before);
        for (kind, hold) in begun {
            tracing::warn!(%kind, "acting is held: {hold}");
            let body = records::pause(hold);
            self.ledger.write(RecordType::Pause, |journal, at| journal.pause(at, kind, body));
        }
        for kind in ended {
            tracing::warn!(%kind, "acting is not held any more");
            self.ledger.write(RecordType::Resume, |journal, at| journal.resume(at, kind));
        }
        for kind in HoldKind::ALL {
            let holds = self.brakes.in_force().contains_key(kind);
            self.metrics.daemon.paused.set(*kind, f64::from(u8::from(holds)));
        }
        braking
    }

    /// What keeps from acting, in force at the last look.
    pub(super) const fn holds(&self) -> &BTreeMap<HoldKind, Hold> {
        self.brakes.in_force()
    }

    fn standing(&mut self, braking: &Braking, swept: usize) -> Standing {
        let now = clock::boot();
        self.recent.retain(|begun| now.since(*begun) < MINUTE);
        Standing {
            paused: braking.paused.clone(),
            storm: braking.storm.clone(),
            swept: u32::try_from(swept).unwrap_or(u32::MAX),
            audit_down: self.ledger.down().map(str::to_owned),
            recent_reaps: u32::try_from(self.recent.len()).unwrap_or(u32::MAX),
        }
    }

    fn note_changes<S: Subject>(&mut self, all: &[Judged<S>], hinted: Option<BootTime>) {
        for judged in all {
            let id = &judged.id;
            let state = report::state_of(judged, self.stuck.contains_key(id));
            let before = match state {
                Some(state) => self.states.insert(id.clone(), state),
                None => self.states.remove(id),
            };
            match judged.history.clean_since {
                Some(since) => {
                    self.began.entry(id.clone()).or_insert_with(|| hinted.unwrap_or(since).min(since));
                }
                None => drop(self.began.remove(id)),
            }
            if let Some(state) = state
                && before != Some(state)
            {
                report::log_change(judged, state);
                if state.1 == LeakState::Confirmed {
                    self.confirmed(judged);
                }
                self.count_vetoes(judged);
            }
        }
    }

    fn count_vetoes<S>(&self, judged: &Judged<S>) {
        if let Verdict::Held { vetoes, .. } = &judged.verdict {
            for veto in vetoes {
                self.metrics.leak.vetoes.inc(veto.guard);
            }
        }
    }

    fn confirmed<S: Subject>(&mut self, judged: &Judged<S>) {
        let Some(proof) = judged.proof() else { return };
        let stamp = clock::stamp();
        let began = self.began.get(&judged.id).copied().unwrap_or(stamp.boot);
        let latency = stamp.boot.since(began);
        self.metrics.leak.detected.inc((proof.kind(), proof.cause()));
        self.metrics.leak.detection_latency.observe(latency.as_secs_f64());
        let trigger = Trigger::daemon(proof.cause());
        let body = records::confirmed(proof, trigger, latency, stamp.boot);
        let id = judged.id.to_string();
        self.ledger.write(RecordType::LeakConfirmed, |journal, at| journal.leak_confirmed(at, id, body));
    }

    /// What is gone, or in use again, which is no end of a leak.
    fn forget(&mut self, round: &Round, in_use: &BTreeSet<LeakId>) {
        let present = round.ids();
        let gone: Vec<LeakId> = self.states.keys().filter(|id| !present.contains(id)).cloned().collect();
        for id in gone {
            let Some((kind, state)) = self.states.remove(&id) else { continue };
            let by_us = self.reaped.remove(&id).is_some();
            if in_use.contains(&id) {
                tracing::info!(leak = %id, %kind, %state, "in use again");
                continue;
            }
            let by = if by_us { ClearedBy::Reaper } else { ClearedBy::Vanished };
            self.metrics.leak.cleared.inc((kind, by));
            if !by_us {
                tracing::info!(leak = %id, %kind, %state, "gone by itself");
            }
        }
        self.stuck.retain(|id, _| present.contains(id));
        self.began.retain(|id, _| present.contains(id));
        self.refused.retain(|id, _| present.contains(id));
    }

    fn due_proofs<S: Clone>(&self, judged: &[Judged<S>]) -> Vec<LeakProof<S>> {
        let now = clock::boot();
        let due = |id| self.stuck.get(id).is_none_or(|stuck| stuck.until <= now);
        judged.iter().filter(|judged| due(&judged.id)).filter_map(|judged| judged.proof().cloned()).collect()
    }

    /// Said once, not at every look.
    fn note_refusal<S>(&mut self, plan: &ReapPlan<S>, veto: &Veto) {
        if self.refused.insert(plan.id().clone(), veto.guard) != Some(veto.guard) {
            self.metrics.leak.vetoes.inc(veto.guard);
            let ops: Vec<&str> = plan.steps().iter().map(crate::plan::Step::op).collect();
            tracing::info!(leak = %plan.id(), plan = ops.join(","), "would reap, but {}: {}", veto.guard, veto.detail);
        }
    }

    async fn act<S: Seek + Reap>(&mut self, engine: &mut Engine, hints: &mut Hints, plan: ReapPlan<S>) {
        // A pause may have begun since the look, or harm been done.
        if let Some(detail) = self.brakes.paused_now() {
            return self.note_refusal(&plan, &Veto { guard: Guard::Paused, detail, ready_at: None });
        }
        let alone = match wait_for_others(&self.state_dir).await {
            Ok(alone) => alone,
            Err(veto) => return self.note_refusal(&plan, &veto),
        };
        let Some(journal) = self.ledger.journal() else { return };
        let (id, kind) = (plan.id().clone(), plan.proof().kind());
        let key = plan.proof().sighting().container().clone();
        let trigger = Trigger::daemon(plan.proof().cause());
        self.recent.push_back(clock::boot());
        match carry_out(engine, journal, plan, trigger, &hints.freshness(), &alone).await {
            Acted::Done { report, outcome, unrecorded } => {
                self.metrics.audit.records.inc(RecordType::ReapIntent);
                self.note_outcome(&report, unrecorded);
                self.compare(hints, &report).await;
                tracing::info!(leak = %id, container.id = %key, %kind, took = ?report.took, killed = report.killed.len(), "{}", report.summary());
                self.count(kind, &report, outcome);
                self.stop_if_harmful(&report);
                self.settle(id, kind, outcome);
            }
            Acted::Stopped(veto) => {
                tracing::info!(leak = %id, container.id = %key, "not reaped, {}: {}", veto.guard, veto.detail);
                self.metrics.leak.vetoes.inc(veto.guard);
                self.metrics.reap.reaps.inc((kind, Outcome::Vetoed));
            }
            Acted::Unrecordable(error) => {
                tracing::info!(leak = %id, container.id = %key, "not reaped, {}", Guard::AuditUnavailable);
                self.metrics.leak.vetoes.inc(Guard::AuditUnavailable);
                self.metrics.reap.reaps.inc((kind, Outcome::Vetoed));
                self.ledger.failed(&error);
            }
        }
    }

    /// What the kernel saw us kill, against what was meant.
    async fn compare(&mut self, hints: &mut Hints, report: &Report) {
        self.watchman.acted(report);
        if !hints.tells_kills() {
            return;
        }
        match hints.kills(report.sent).await {
            Ok(killed) if killed.len() < report.sent => {
                let (sent, seen) = (report.sent, killed.len());
                tracing::warn!(
                    sent,
                    seen,
                    "the kernel did not tell of every signal, what was sent is what counts"
                );
                self.accuse(&killed);
            }
            Ok(killed) => self.accuse(&killed),
            Err(error) => tracing::warn!("{error:#}: what was sent is what counts"),
        }
    }

    /// The kernel says that we killed these: whoever was not meant ends all acting.
    pub(super) fn accuse(&mut self, killed: &[ProcessKey]) {
        let strangers = self.watchman.strangers(killed);
        self.metrics.reap.bystanders.inc_by(u64::try_from(strangers.len()).unwrap_or(u64::MAX));
        if let Some(process) = strangers.first() {
            let reason = format!("the kernel saw us kill process {process}, which no act was about");
            self.brakes.harm(reason);
        }
    }

    fn note_outcome(&mut self, report: &Report, unrecorded: Option<Unrecorded>) {
        match unrecorded {
            None => self.ledger.recorded(RecordType::ReapOutcome, Ok(())),
            Some(Unrecorded { error, txn }) => {
                self.ledger.failed(&error);
                self.ledger.keep(txn, records::outcome(report));
            }
        }
    }

    /// What must never happen ends all acting, until a person has looked and started the daemon anew.
    fn stop_if_harmful(&mut self, report: &Report) {
        let Some(bystander) = report.bystanders.first() else { return };
        self.brakes.harm(format!("process {bystander} was killed and was not judged"));
    }

    fn settle(&mut self, id: LeakId, kind: LeakKind, outcome: Outcome) {
        if outcome == Outcome::Partial {
            // Its cgroups are gone, and it was us.
            self.reaped.insert(id.clone(), kind);
        }
        if outcome == Outcome::Reaped {
            self.tally.reaped = self.tally.reaped.saturating_add(1);
            self.stuck.remove(&id);
            self.reaped.insert(id, kind);
            return;
        }
        self.tally.failed = self.tally.failed.saturating_add(1);
        let tries = self.stuck.get(&id).map_or(0, |stuck| stuck.tries);
        let wait =
            FIRST_RETRY.saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX)).min(LONGEST_RETRY);
        let stuck = Stuck { tries: tries.saturating_add(1), until: clock::boot().after(wait) };
        tracing::warn!(leak = %id, ?wait, tries = stuck.tries, "stuck, trying again later");
        self.stuck.insert(id, stuck);
    }

    fn count(&self, kind: LeakKind, report: &Report, outcome: Outcome) {
        let reap = &self.metrics.reap;
        reap.reaps.inc((kind, outcome));
        reap.duration.observe(kind, report.took.as_secs_f64());
        reap.last.set(kind, report::seconds(clock::wall()));
        let killed = u64::try_from(report.killed.len()).unwrap_or(u64::MAX);
        reap.killed.add((kind, KillMethod::Pidfd), killed);
        reap.bystanders.inc_by(u64::try_from(report.bystanders.len()).unwrap_or(u64::MAX));
        for step in report.steps.iter().filter(|step| step.error.is_some()) {
            if let Some(step) = ReapStep::of(step.op) {
                reap.step_failures.inc(step);
            }
        }
    }

    /// What a one-shot run comes to, given its last look.
    pub(super) fn tally(&self, last: &Round) -> Tally {
        Tally { left: last.confirmed(), ..self.tally.clone() }
    }

    pub(super) fn stop(&mut self, reason: &str) {
        let reason = reason.to_owned();
        self.ledger.write(RecordType::DaemonStop, |journal, at| journal.daemon_stop(at, reason));
    }
}

/// What a containerd lists as a task again.
fn in_use(engine: &Engine, round: &Round) -> BTreeSet<LeakId> {
    let live: BTreeSet<_> = round.look.live.iter().map(|live| &live.container).collect();
    let seen = engine.seen().iter().filter(|seen| live.contains(&seen.container));
    seen.map(|seen| LeakId::of(&seen.container, &seen.cgroup)).collect()
}
