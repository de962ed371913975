//! Where hints come from: the probes, or nothing but the clock.

use std::collections::BTreeSet;

use anyhow::Context as _;
use tokio::sync::mpsc::Receiver;

use super::listen::{Batch, Heard, Listening, listen};
use crate::ident::{CgroupRef, ProcessKey, StartTicks, Tgid};
use crate::kernel::chain;
use crate::metrics::ProbeLevel;
use crate::probe::{self, Level, Losses, Probe};
use crate::procfs;
use crate::verdict::Freshness;

/// Which probes are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    /// The best that works here
    #[default]
    Auto,
    /// BPF programs on typed tracepoints, or fail
    Btf,
    /// BPF programs on classic tracepoints, for kernels without type information, or fail
    Classic,
    /// None: look from time to time only
    Poll,
}

/// A source of hints.
#[derive(Debug)]
pub(super) struct Hints {
    probe: Option<Probe>,
    heard: Option<Receiver<Batch>>,
    tracked: BTreeSet<CgroupRef>,
    watched: BTreeSet<ProcessKey>,
    covered: Losses,
}

// === impl Hints ===

impl Hints {
    /// Loads what is wanted. With [`Wanted::Auto`] a failure is logged, and the next level is tried.
    pub(super) fn start(wanted: Wanted) -> anyhow::Result<Self> {
        let (probe, heard) = load(wanted)?.unzip();
        let (tracked, watched, covered) = (BTreeSet::new(), BTreeSet::new(), Losses::default());
        Ok(Self { probe, heard, tracked, watched, covered })
    }

    /// How hints are obtained.
    pub(super) fn level(&self) -> ProbeLevel {
        match self.probe.as_ref().map(Probe::level) {
            Some(Level::Btf) => ProbeLevel::Btf,
            Some(Level::Classic) => ProbeLevel::Classic,
            None => ProbeLevel::Poll,
        }
    }

    /// Whether events come at all.
    pub(super) const fn is_live(&self) -> bool {
        self.probe.is_some()
    }

    /// What had been lost when the last full look began.
    pub(super) const fn covered(&self) -> Losses {
        self.covered
    }

    /// Waits for events; for ever where there are no probes. Cancel safe.
    pub(super) async fn next(&mut self) -> anyhow::Result<Vec<Heard>> {
        match &mut self.heard {
            Some(heard) => Ok(heard.recv().await.context("nobody reads the events any more")??),
            None => std::future::pending().await,
        }
    }

    /// Asks for the events of these cgroups, and forgets the others.
    pub(super) fn track(&mut self, wanted: BTreeSet<CgroupRef>) {
        let Some(probe) = &mut self.probe else { return };
        let forgotten: Vec<CgroupRef> = self.tracked.difference(&wanted).copied().collect();
        let added: Vec<CgroupRef> = wanted.difference(&self.tracked).copied().collect();
        let forgot = forgotten.into_iter().map(|cgroup| probe.untrack(cgroup)).collect::<Vec<_>>();
        let tracked = added.into_iter().map(|cgroup| probe.track(cgroup)).collect::<Vec<_>>();
        for error in forgot.into_iter().chain(tracked).filter_map(Result::err) {
            // Its events are hints: without them the periodic look finds the same, later.
            tracing::warn!(error = %chain(&error), "no events from this cgroup");
        }
        self.tracked = wanted;
    }

    /// Asks for the lives of these shims and of what they start. Those that began after the probes are known to the
    /// kernel's side already. Ended ones it forgets by itself: by now their number may mean another one.
    pub(super) fn watch(&mut self, wanted: BTreeSet<ProcessKey>) {
        let Some(probe) = &mut self.probe else { return };
        for shim in wanted.difference(&self.watched) {
            if let Err(error) = probe.watch(*shim) {
                // What it starts is seen by name at its exec, all the same.
                tracing::warn!(error = %chain(&error), "no events from this shim");
            }
            // Ended meanwhile: its number must not be watched for the sake of who has it next.
            if start_of(shim.tgid) != Some(shim.start)
                && let Err(error) = probe.unwatch(*shim)
            {
                tracing::warn!(error = %chain(&error), "events may come from a stranger with the shim's number");
            }
        }
        self.watched = wanted;
    }

    /// Housekeeping of the kernel's side, from time to time.
    pub(super) fn tidy(&mut self) {
        if let Some(probe) = &mut self.probe
            && let Err(error) = probe.tidy()
        {
            tracing::warn!(error = %chain(&error), "processes that concern nobody cost a little more");
        }
    }

    /// A full look begins: what was lost until now, it makes good. Returns whether anything was.
    pub(super) fn cover(&mut self) -> bool {
        let before = self.covered;
        self.covered = self.losses().unwrap_or(self.covered);
        self.covered != before
    }

    /// Whether anything was lost since the last full look began.
    pub(super) fn freshness(&self) -> Freshness {
        match self.losses() {
            Some(losses) if losses == self.covered => Freshness::Fresh,
            Some(losses) => Freshness::Stale(format!(
                "{} kernel events were lost since the last look",
                losses.total().saturating_sub(self.covered.total())
            )),
            None => Freshness::Stale("the count of lost events cannot be read".to_owned()),
        }
    }

    /// What was lost so far; `None` if that cannot be told.
    pub(super) fn losses(&self) -> Option<Losses> {
        match &self.probe {
            None => Some(Losses::default()),
            Some(probe) => probe
                .losses()
                .inspect_err(|error| tracing::warn!(error = %chain(error), "cannot count lost events"))
                .ok(),
        }
    }
}

fn load(wanted: Wanted) -> anyhow::Result<Option<Listening>> {
    let optional = wanted == Wanted::Auto;
    let levels: &[Level] = match wanted {
        Wanted::Poll => return Ok(None),
        Wanted::Auto => &Level::ALL,
        Wanted::Btf => &[Level::Btf],
        Wanted::Classic => &[Level::Classic],
    };
    let Some(object) = probe::embedded() else {
        let reason = "this binary was built without the BPF object (cargo xtask build)";
        anyhow::ensure!(optional, reason);
        tracing::warn!("level poll: {reason}");
        return Ok(None);
    };
    let (listening, failed) = listen(levels, object)?;
    for (level, error) in failed {
        if !optional {
            return Err(error).with_context(|| format!("no probes of level {level}"));
        }
        tracing::warn!(error = %chain(&error), "no probes of level {level}");
    }
    if listening.is_none() {
        tracing::warn!("level poll: looking from time to time instead");
    }
    Ok(listening)
}

fn start_of(tgid: Tgid) -> Option<StartTicks> {
    procfs::start_of(tgid).found().copied()
}
