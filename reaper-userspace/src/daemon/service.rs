//! The daemon: waits for hints, looks, and reaps what is confirmed and permitted.
//!
//! One task owns everything here. A hint only says that it is worth looking; what is judged is read anew.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::clock;
use super::engine::{Engine, Round};
use super::follow::follow;
pub use super::hints::Wanted;
use super::hints::{self, Hints};
use super::holds::Hold;
use super::listen::Heard;
use super::lock::{self, Lock};
use super::memory::Keeper;
use super::notify::Manager;
use super::report;
use super::schedule::{Due, Schedule};
use super::sweep::{Reaping, Tally};
use crate::admin::{Admin, Health};
use crate::cgroupfs::CgroupDir;
use crate::ident::{CgroupRef, Lookup, ProcessKey};
use crate::kernel::return_memory;
use crate::leak::HoldKind;
use crate::lineage::{Lineage, Notice};
use crate::metrics::{BuildInfo, Component, Metrics, ResyncTrigger, Word as _};
use crate::policy::Mode;
use crate::time::BootTime;

/// The main loop turns at least this often, or the daemon counts as stuck.
const HEARTBEAT_LIMIT: Duration = Duration::from_mins(2);
/// How much longer than the grace a one-shot run may take: a look lasts seconds where a source does not answer.
const ONCE_PATIENCE: Duration = Duration::from_secs(30);
/// The main loop wakes up this often at least: for what no event tells of, see [`Hints::is_overdue`].
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How the daemon is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two looks when nothing happens.
    pub interval: Duration,
    /// Where metrics are served, if anywhere.
    pub listen: Option<SocketAddr>,
    /// The audit log.
    pub audit_log: PathBuf,
    /// Lock and memory.
    pub state_dir: PathBuf,
    /// Which probes.
    pub probes: Wanted,
    /// The node's name in records.
    pub node: String,
}

/// The parts of a running daemon.
#[derive(Debug)]
struct Service {
    engine: Engine,
    reaping: Reaping,
    hints: Hints,
    lineage: Lineage,
    schedule: Schedule,
    metrics: Metrics,
    health: Option<Health>,
    settings: Settings,
    /// Earliest event that no look has followed yet.
    hinted: Option<BootTime>,
    lock: Option<Lock>,
    keeper: Keeper,
    manager: Manager,
}

/// What people and service managers ask for.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// What was asked for.
enum Asked {
    End,
    /// SIGHUP: look at everything, now.
    Look,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// What keeps it from starting: the audit log, the port, the state directory, or probes that were demanded.
pub async fn run(engine: Engine, settings: Settings) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut service = Box::new(Service::start(engine, settings)?);
    let admin = service.admin().await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serve = async {
        match admin {
            Some(admin) => admin.serve(async { drop(stopped.await) }).await.context("metrics"),
            None => Ok(()),
        }
    };
    let work = async {
        let result = service.turn(&mut signals).await;
        // The server may have ended by itself; then nobody listens.
        let _nobody_listens = stop.send(()).is_err();
        result
    };
    let (served, worked) = tokio::join!(serve, work);
    let reason = if worked.is_ok() { "signal" } else { "error" };
    service.stop(reason);
    worked.and(served)
}

/// One complete reconcile: looks until time alone changes nothing any more, reaps what is permitted, looks again.
///
/// # Errors
/// As [`run`].
pub async fn once(engine: Engine, settings: Settings) -> anyhow::Result<Tally> {
    let settings = Settings { listen: None, probes: Wanted::Poll, ..settings };
    let mut service = Box::new(Service::start(engine, settings)?);
    let until = clock::boot().after(service.engine.policy().grace.saturating_add(ONCE_PATIENCE));
    let look_gap = service.engine.policy().look_gap;
    let last = loop {
        let (round, acts) = service.round(ResyncTrigger::Startup).await?;
        // What was tried is looked at again before the node is called clean: a guard may have stopped it.
        let acted = (acts > 0).then(|| clock::boot().after(look_gap));
        let Some(ready) = round.ready_at().or(acted) else { break round };
        if ready >= until {
            break service.engine.round(&service.hints.freshness()).await;
        }
        let wait = ready.since(clock::boot());
        if wait > Duration::from_secs(1) {
            tracing::info!(?wait, "waiting for suspects to become old enough");
        }
        sleep(wait.max(Duration::from_millis(1))).await;
    };
    let unanswered = last.look.containerds.iter().find_map(|(address, answer)| match answer {
        Lookup::Found(()) => None,
        Lookup::NotFound => Some(format!("{address}: it is not running")),
        Lookup::Unavailable(reason) => Some(format!("{address}: {reason}")),
    });
    let tally = Tally { unanswered, ..service.reaping.tally(&last) };
    service.stop("once");
    Ok(tally)
}

// === impl Signals ===

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::End,
            _ = self.terminate.recv() => Asked::End,
            _ = self.hangup.recv() => Asked::Look,
        }
    }
}

// === impl Service ===

impl Service {
    fn start(engine: Engine, settings: Settings) -> anyhow::Result<Self> {
        let metrics = Metrics::new(BuildInfo {
            version: env!("CARGO_PKG_VERSION"),
            revision: option_env!("REAPER_REVISION").unwrap_or("unknown"),
            rustc: option_env!("REAPER_RUSTC").unwrap_or("unknown"),
        })?;
        let lock = lock::take(&settings.state_dir)
            .with_context(|| format!("cannot use state directory {}", settings.state_dir.display()))?;
        let reaping = Reaping::start(&engine, &settings, lock.is_some(), metrics.clone())?;
        let hints = Hints::start(settings.probes)?;
        metrics.probe.set_level(hints.level());
        metrics.daemon.component_up.set(Component::Ebpf, f64::from(u8::from(hints.is_live())));
        metrics.daemon.component_up.set(Component::Cgroupfs, 1.0);
        if !hints.tells_kills() {
            tracing::info!(
                "without typed probes a killed bystander is told from what was sent, not from what the kernel saw"
            );
        }
        let schedule = Schedule::new(settings.interval, clock::boot());
        tracing::info!(
            mode = ?engine.policy().mode, probes = hints.level().as_str(), audit = %settings.audit_log.display(),
            "cgroup-reaper {} started", env!("CARGO_PKG_VERSION")
        );
        Ok(Self {
            engine,
            reaping,
            hints,
            lineage: Lineage::default(),
            schedule,
            metrics,
            health: None,
            settings,
            hinted: None,
            lock,
            keeper: Keeper::default(),
            manager: Manager::from_env(),
        })
    }

    async fn admin(&mut self) -> anyhow::Result<Option<Admin>> {
        let Some(listen) = self.settings.listen else { return Ok(None) };
        let names = Component::ALL.iter().map(|component| component.word());
        let health = Health::new(names, Arc::new(clock::boot), HEARTBEAT_LIMIT);
        // Without probes it is slower, and as sure: not a reason to be taken out of service.
        health.ok(Component::Ebpf.word());
        health.ok(Component::Cgroupfs.word());
        let metrics = self.metrics.clone();
        let page = Arc::new(move || metrics.render().map_err(|error| crate::kernel::chain(&error)));
        let admin = Admin::bind(listen, page, health.clone()).await?;
        tracing::info!(address = %admin.address(), "serving /metrics, /livez, /readyz");
        self.health = Some(health);
        Ok(Some(admin))
    }

    async fn turn(&mut self, signals: &mut Signals) -> anyhow::Result<()> {
        let longest_sleep = self.manager.longest_sleep(LONGEST_SLEEP);
        let mut first = true;
        loop {
            if let Some(health) = &self.health {
                health.beat();
            }
            self.manager.alive();
            let (at, due) = self.schedule.next();
            let wait = at.since(clock::boot());
            tokio::select! {
                biased;
                asked = signals.next() => match asked {
                    Asked::End => return Ok(()),
                    Asked::Look => self.reload().await?,
                },
                events = self.hints.next() => self.hint(&events?),
                () = sleep(wait.min(longest_sleep)) => {
                    if wait <= longest_sleep {
                        let trigger = if first { ResyncTrigger::Startup } else { trigger_of(due) };
                        self.round(trigger).await?;
                        if first {
                            self.manager.ready();
                        }
                        if trigger != ResyncTrigger::Event {
                            // What the look needed has been dropped by now.
                            return_memory();
                        }
                        first = false;
                    } else if self.hints.is_overdue() {
                        self.schedule.hint(clock::boot());
                    }
                }
            }
        }
    }

    /// There is no configuration to read again: what a reload can do is look, at once and at everything.
    async fn reload(&mut self) -> anyhow::Result<()> {
        tracing::info!("reload: looking at everything");
        self.manager.reloading();
        self.round(ResyncTrigger::Operator).await?;
        self.manager.ready();
        Ok(())
    }

    fn status(&self, round: &Round) -> String {
        let mode = if self.engine.policy().mode == Mode::Enforce { "enforce" } else { "observe" };
        let leaks = round.judged.iter().filter(|judged| judged.verdict.state().is_some()).count();
        format!("{mode}; with the shape of a leak: {leaks}")
    }

    fn hint(&mut self, events: &[Heard]) {
        report::count_events(&self.metrics, events);
        for event in events {
            match follow(&mut self.lineage, event) {
                Some(Notice::Reused(_)) => self.metrics.probe.pid_reuses.inc(),
                Some(Notice::CommandEnded(ended)) => self.engine.note_command(*ended),
                None => {}
            }
        }
        // Of acts that have ended; usually they are compared there.
        let killed: Vec<ProcessKey> = events.iter().filter_map(hints::killed).collect();
        self.reaping.accuse(&killed);
        if let Some(first) = events.first() {
            self.hinted.get_or_insert(first.event.at);
            self.schedule.hint(clock::boot());
        }
    }

    /// Looks, and acts on what is permitted; returns the number of acts.
    async fn round(&mut self, trigger: ResyncTrigger) -> anyhow::Result<(Round, usize)> {
        self.take_over();
        let before = self.hints.covered();
        let lost = self.hints.cover();
        if lost {
            report::count_losses(&self.metrics, before, self.hints.covered());
        }
        let slept = self.hints.slept().is_some();
        self.metrics.leak.resyncs.inc(cause(trigger, lost, slept));
        let hinted = self.hinted.take();
        let began = clock::awake();
        let round = self.engine.round(&self.hints.freshness()).await;
        // Both: what is new in either was not reported until now, and is looked at again.
        let new = self.hints.track(wanted(&self.engine, &round)) | self.hints.watch(awaited(&round));
        if trigger == ResyncTrigger::Periodic {
            self.hints.tidy();
        }
        let acted = self.reaping.sweep(&mut self.engine, &mut self.hints, &round, hinted).await;
        self.show_health(&round);
        self.manager.status(&self.status(&round));
        report::count_round(&self.metrics, &round, self.reaping.states());
        let again = round.ready_at().into_iter().chain(self.reaping.retry_at()).min();
        self.schedule.looked(round.at, clock::boot(), again);
        self.hints.looked(began);
        if acted > 0 || new {
            // What was reaped should be gone now: look.
            self.schedule.hint(clock::boot());
        }
        self.keep(false);
        Ok((round, acted))
    }

    /// Keeps what the next run should know. One writer: two would take each other's new file away.
    fn keep(&mut self, last: bool) {
        if self.lock.is_none() {
            return;
        }
        let kept = self.keeper.keep(self.engine.memory(), &self.settings.state_dir, clock::boot(), last);
        if let Err(error) = kept {
            tracing::warn!(error = %crate::kernel::chain(&error), "cannot keep the memory; a restart begins anew");
        }
    }

    /// Tries the lock again, if another process had it.
    fn take_over(&mut self) {
        if self.lock.is_none() {
            self.lock = lock::take(&self.settings.state_dir).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot try the lock again");
                None
            });
            if self.lock.is_some() {
                self.reaping.resume();
            }
        }
    }

    fn show_health(&self, round: &Round) {
        let down = round.look.containerds.values().find_map(Lookup::unavailable);
        self.metrics.daemon.component_up.set(Component::Containerd, f64::from(u8::from(down.is_none())));
        let audit = self.reaping.audit_down();
        let held = self.reaping.holds();
        let enforces = self.engine.policy().mode == Mode::Enforce && held.is_empty() && audit.is_none();
        self.metrics.daemon.enforcing.set(f64::from(u8::from(enforces)));
        self.metrics.daemon.component_up.set(Component::Audit, f64::from(u8::from(audit.is_none())));
        let Some(health) = &self.health else { return };
        match down {
            None => health.ok(Component::Containerd.word()),
            Some(reason) => health.failed(Component::Containerd.word(), reason),
        }
        show_holds(health, held);
        match audit {
            None => health.ok(Component::Audit.word()),
            Some(reason) => health.failed(Component::Audit.word(), reason),
        }
    }

    fn stop(&mut self, reason: &str) {
        self.manager.stopping();
        self.keep(true);
        self.reaping.stop(reason);
        tracing::info!(reason, "stopped");
    }
}

const fn cause(due: ResyncTrigger, lost: bool, slept: bool) -> ResyncTrigger {
    match (slept, lost) {
        (true, _) => ResyncTrigger::Suspend,
        (false, true) => ResyncTrigger::LostEvents,
        (false, false) => due,
    }
}

/// A pause is somebody's wish and no fault; a killed bystander is one.
fn show_holds(health: &Health, held: &BTreeMap<HoldKind, Hold>) {
    const NAME: &str = "acting";
    if let Some(hold) = held.get(&HoldKind::Bystander) {
        return health.failed(NAME, &hold.to_string());
    }
    let notes: Vec<String> = held.iter().map(|(kind, hold)| format!("held, {kind}: {hold}")).collect();
    if notes.is_empty() { health.ok(NAME) } else { health.noted(NAME, &notes.join("; ")) }
}

const fn trigger_of(due: Due) -> ResyncTrigger {
    match due {
        Due::Periodic => ResyncTrigger::Periodic,
        Due::Asked => ResyncTrigger::Event,
    }
}

/// Shims, and the commands that hold something back, as clients do that no probe would follow: the end of each is worth
/// a look.
fn awaited(round: &Round) -> BTreeSet<ProcessKey> {
    let holding = round.judged.iter().flat_map(|judged| &judged.sighting.in_flight);
    round.look.shims.iter().copied().chain(holding.map(|command| command.process.key)).collect()
}

/// The cgroups of containers, for what happens in them, and the cgroups they are in, for new ones.
pub(super) fn wanted(engine: &Engine, round: &Round) -> BTreeSet<CgroupRef> {
    let layout = engine.layout();
    let mut cgroups: BTreeSet<CgroupRef> = engine.seen().iter().flat_map(|seen| seen.roots.clone()).collect();
    let parents: BTreeSet<_> = engine.seen().iter().filter_map(|seen| seen.cgroup.parent()).collect();
    for parent in parents.iter().filter(|parent| !parent.is_root()) {
        let opened =
            layout.hierarchies().iter().filter_map(|mount| mount.open(parent).found().map(CgroupDir::cgroup));
        cgroups.extend(opened);
    }
    for tree in round.judged.iter().flat_map(|judged| &judged.sighting.trees) {
        cgroups.extend(tree.nodes.iter().map(|node| node.cgroup));
    }
    cgroups
}
