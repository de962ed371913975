//! Counts what happens and renders it for Prometheus.
//!
//! Each part of the program is handed its own struct; there are no globals. Labels are closed sets, so that the
//! number of series is fixed: ids, paths and texts go to the audit file and the log, never to a label.
//!
//! # Invariants
//! - Fewer than 400 series, all there from the start (`every_series_is_there_from_the_start`).
//! - Names start with `cgroup_reaper_`, except the standard `process_*`.

mod family;
mod label;
mod part;
mod process;

use prometheus::{Registry, TextEncoder};

pub use family::{Counters, Family, Gauges, Histograms};
pub use label::{
    AuditOp, ClearedBy, Component, KernelEvent, Labels, Loss, ProbeLevel, ReapStep, RecordType,
    RequestOutcome, ResyncTrigger, RuntimeMethod, Word,
};
pub use part::{AuditMetrics, DaemonMetrics, LeakMetrics, ProbeMetrics, ReapMetrics, RuntimeMetrics};

use family::Maker;
use process::ProcessMetrics;

/// Everything that is counted. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    process: ProcessMetrics,
    /// The daemon as a whole.
    pub daemon: DaemonMetrics,
    /// Kernel events.
    pub probe: ProbeMetrics,
    /// What was found.
    pub leak: LeakMetrics,
    /// What was done.
    pub reap: ReapMetrics,
    /// Questions to containerd and its shims.
    pub runtime: RuntimeMetrics,
    /// The audit file.
    pub audit: AuditMetrics,
}

/// What the binary is.
#[derive(Clone, Copy, Debug)]
pub struct BuildInfo {
    /// Version of the program.
    pub version: &'static str,
    /// Commit that it was built from.
    pub revision: &'static str,
    /// Compiler that built it.
    pub rustc: &'static str,
}

/// Why metrics cannot be used: a mistake in the catalogue, or memory.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// Two metrics share a name, or a name is not valid.
    #[error("cannot register metrics")]
    Register(#[source] prometheus::Error),
    /// The page could not be written.
    #[error("cannot render metrics")]
    Render(#[source] prometheus::Error),
}

impl Metrics {
    /// Registers everything, at zero.
    pub fn new(build: BuildInfo) -> Result<Self, MetricsError> {
        Self::register(build).map_err(MetricsError::Register)
    }

    fn register(build: BuildInfo) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let make = Maker(&registry);
        make.info(
            "build_info",
            "1; the labels say what the binary is.",
            &[("version", build.version), ("revision", build.revision), ("rustc", build.rustc)],
        )?;
        Ok(Self {
            process: ProcessMetrics::new(&make)?,
            daemon: DaemonMetrics::new(&make)?,
            probe: ProbeMetrics::new(&make)?,
            leak: LeakMetrics::new(&make)?,
            reap: ReapMetrics::new(&make)?,
            runtime: RuntimeMetrics::new(&make)?,
            audit: AuditMetrics::new(&make)?,
            registry,
        })
    }

    /// The page, in the text format 0.0.4.
    pub fn render(&self) -> Result<String, MetricsError> {
        if let Err(error) = self.process.read() {
            tracing::debug!(%error, "cannot read what this process costs, keeping the last values");
        }
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(MetricsError::Render)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::leak::{Guard, LeakKind, Outcome};

    fn metrics() -> Metrics {
        Metrics::new(BuildInfo { version: "0.1.0", revision: "abc", rustc: "1.95.0" }).unwrap()
    }

    fn series(page: &str) -> Vec<&str> {
        page.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn every_series_is_there_from_the_start() {
        let metrics = metrics();
        let page = metrics.render().unwrap();
        let before = series(&page).len();
        assert!((200..400).contains(&before), "{before} series");
        metrics.leak.vetoes.inc(Guard::TooYoung);
        metrics.reap.reaps.inc((LeakKind::Empty, Outcome::Reaped));
        metrics.reap.duration.observe(LeakKind::Empty, 0.02);
        metrics.probe.set_level(ProbeLevel::Btf);
        let page = metrics.render().unwrap();
        assert_eq!(series(&page).len(), before);
        for line in [
            "cgroup_reaper_vetoes_total{guard=\"too_young\"} 1",
            "cgroup_reaper_reaps_total{kind=\"cgroup.empty\",outcome=\"reaped\"} 1",
            "cgroup_reaper_reap_duration_seconds_bucket{kind=\"cgroup.empty\",le=\"0.025\"} 1",
            "cgroup_reaper_probe_level{level=\"btf\"} 1",
            "cgroup_reaper_probe_level{level=\"poll\"} 0",
            "cgroup_reaper_build_info{revision=\"abc\",rustc=\"1.95.0\",version=\"0.1.0\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in:\n{page}");
        }
    }

    #[test]
    fn every_guard_has_a_series() {
        let page = metrics().render().unwrap();
        for guard in Guard::ALL {
            let line = format!("cgroup_reaper_vetoes_total{{guard=\"{guard}\"}} 0");
            assert!(page.lines().any(|found| found == line), "{line}");
        }
    }

    #[test]
    fn names_are_ours_or_standard() {
        let page = metrics().render().unwrap();
        let ours = |line: &&str| line.starts_with("cgroup_reaper_") || line.starts_with("process_");
        assert_eq!(series(&page).into_iter().find(|line| !ours(line)), None);
    }

    #[test]
    fn the_catalogue_in_the_docs_has_every_name_and_type_and_no_other() {
        let page = metrics().render().unwrap();
        let exported = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let catalogue = include_str!("../../../docs/metrics.md").lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            let kind =
                rest.split(" |").next().filter(|kind| ["counter", "gauge", "histogram"].contains(kind))?;
            Some((name, kind))
        });
        assert_eq!(catalogue.collect::<BTreeSet<_>>(), exported.collect::<BTreeSet<_>>());
    }

    #[test]
    fn this_process_is_measured() {
        let metrics = metrics();
        let page = metrics.render().unwrap();
        let zero =
            |line: &&str| line.starts_with("process_") && line.ends_with(" 0") && !line.contains("cpu");
        assert_eq!(series(&page).into_iter().find(zero), None);
    }
}
