//! The catalogue, by the part of the program that sets it. Each part is handed its own struct.

use prometheus::{Gauge, Histogram, IntCounter};

use super::family::{Counters, Gauges, Histograms, Maker};
use super::label::{
    AuditOp, ClearedBy, Component, KernelEvent, Labels as _, Loss, ProbeLevel, ReapStep, RecordType,
    RequestOutcome, ResyncTrigger, RuntimeMethod,
};
use crate::leak::{Cause, Guard, HoldKind, KillMethod, LeakKind, LeakState, Outcome};

/// From a tenth of a millisecond to a second.
const LAG: [f64; 9] = [0.0001, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];
/// From a millisecond to five seconds.
const SCAN: [f64; 8] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
/// A detection cannot be faster than the grace that was configured.
const DETECTION: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 900.0];
/// Around the 2 s that bound a reap.
const REAP: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0];
/// Up to the limit of a request.
const REQUEST: [f64; 8] = [0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0];

/// The daemon as a whole.
#[derive(Clone, Debug)]
pub struct DaemonMetrics {
    /// 0 observe, 1 enforce.
    pub enforcing: Gauge,
    /// 1 while something keeps the whole daemon from acting.
    pub paused: Gauges<HoldKind>,
    /// 1 where a component works.
    pub component_up: Gauges<Component>,
}

/// Kernel events.
#[derive(Clone, Debug)]
pub struct ProbeMetrics {
    level: Gauges<ProbeLevel>,
    /// Events that arrived.
    pub events: Counters<KernelEvent>,
    /// Events that did not.
    pub lost: Counters<Loss>,
    /// Numbers of watched processes that were given to another process.
    pub pid_reuses: IntCounter,
    /// From the kernel's timestamp to the inventory, in seconds.
    pub lag: Histogram,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct LeakMetrics {
    /// Full scans begun.
    pub resyncs: Counters<ResyncTrigger>,
    /// How long a full scan took, in seconds.
    pub scan_duration: Histogram,
    /// End of the last full scan, in seconds since 1970.
    pub last_scan: Gauge,
    /// What is under observation.
    pub tracked: Gauges<LeakKind>,
    /// Leaks now.
    pub leaks: Gauges<(LeakKind, LeakState)>,
    /// Processes in confirmed leaks now.
    pub processes: Gauges<LeakKind>,
    /// Leaks proven.
    pub detected: Counters<(LeakKind, Cause)>,
    /// Leaks gone.
    pub cleared: Counters<(LeakKind, ClearedBy)>,
    /// From the event that made it a leak to the proof, in seconds.
    pub detection_latency: Histogram,
    /// Refusals.
    pub vetoes: Counters<Guard>,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct ReapMetrics {
    /// Reaps ended.
    pub reaps: Counters<(LeakKind, Outcome)>,
    /// How long they took, in seconds.
    pub duration: Histograms<LeakKind>,
    /// Steps that failed.
    pub step_failures: Counters<ReapStep>,
    /// Processes killed.
    pub killed: Counters<(LeakKind, KillMethod)>,
    /// End of the last reap, in seconds since 1970; 0 before the first.
    pub last: Gauges<LeakKind>,
    /// Processes hit that were not meant. Stays 0.
    pub bystanders: IntCounter,
}

/// Questions to containerd and its shims.
#[derive(Clone, Debug)]
pub struct RuntimeMetrics {
    /// Questions asked.
    pub requests: Counters<(RuntimeMethod, RequestOutcome)>,
    /// How long the answers took, in seconds.
    pub duration: Histogram,
}

/// The audit file.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    /// Records written.
    pub records: Counters<RecordType>,
    /// Failures, each of which stops acting.
    pub failures: Counters<AuditOp>,
    /// Number of the last record.
    pub last_sequence: Gauge,
}

impl DaemonMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            enforcing: make
                .gauge("enforcing", "1 if confirmed leaks are reaped, 0 if they are only reported.")?,
            paused: make
                .gauges("paused", "1 while nothing is reaped although it should be, by what holds it.")?,
            component_up: make
                .gauges("component_up", "1 if the component works, 0 if it failed or has not started.")?,
        })
    }
}

impl ProbeMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            level: make.gauges("probe_level", "1 for the way in which kernel events are obtained.")?,
            events: make.counters("ebpf_events_total", "Kernel events received.")?,
            lost: make.counters(
                "ebpf_events_lost_total",
                "Kernel events lost; each loss forces a full scan before anything is reaped.",
            )?,
            pid_reuses: make.counter(
                "pid_reuses_total",
                "Process numbers of watched processes that came back as another process.",
            )?,
            lag: make.histogram(
                "event_lag_seconds",
                "Time from a kernel event to its arrival in the inventory.",
                &LAG,
            )?,
        })
    }

    /// Marks one level as the one in use.
    pub fn set_level(&self, level: ProbeLevel) {
        for each in ProbeLevel::all() {
            self.level.set(each, f64::from(u8::from(each == level)));
        }
    }
}

impl LeakMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            resyncs: make.counters("resyncs_total", "Full scans of the node, by what caused them.")?,
            scan_duration: make.histogram(
                "scan_duration_seconds",
                "Duration of full scans of the node.",
                &SCAN,
            )?,
            last_scan: make
                .gauge("last_scan_timestamp_seconds", "Unix time of the end of the last full scan.")?,
            tracked: make
                .gauges("tracked", "Containers under observation, by the kind of leak they would be.")?,
            leaks: make.gauges("leaks", "Leaks on the node now.")?,
            processes: make.gauges("leak_processes", "Processes in confirmed leaks now.")?,
            detected: make.counters("leaks_detected_total", "Leaks proven, by what made them.")?,
            cleared: make.counters("leaks_cleared_total", "Leaks that are gone, by who made them go.")?,
            detection_latency: make.histogram(
                "detection_latency_seconds",
                "Time from the event that made a leak to its proof, the configured grace included.",
                &DETECTION,
            )?,
            vetoes: make.counters("vetoes_total", "Acts that a guard held back, by guard.")?,
        })
    }
}

impl ReapMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            reaps: make.counters("reaps_total", "Reaps, by how they ended.")?,
            duration: make.histograms(
                "reap_duration_seconds",
                "Time from the first step of a reap to its end.",
                &REAP,
            )?,
            step_failures: make.counters("reap_step_failures_total", "Steps of reaps that failed.")?,
            killed: make.counters("processes_killed_total", "Processes killed in leaked cgroups.")?,
            last: make.gauges(
                "last_reap_timestamp_seconds",
                "Unix time of the end of the last reap, 0 before the first.",
            )?,
            bystanders: make.counter(
                "bystander_kills_total",
                "Processes outside of a reap's target that it killed. Must stay 0.",
            )?,
        })
    }
}

impl RuntimeMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            requests: make.counters("runtime_requests_total", "Questions to containerd and its shims.")?,
            duration: make.histogram(
                "runtime_request_duration_seconds",
                "Time that containerd and its shims took to answer.",
                &REQUEST,
            )?,
        })
    }
}

impl AuditMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            records: make.counters("audit_records_total", "Records written to the audit file.")?,
            failures: make.counters(
                "audit_write_failures_total",
                "Failures to record; nothing is reaped until the audit file works again.",
            )?,
            last_sequence: make.gauge("audit_last_sequence", "Sequence number of the last audit record.")?,
        })
    }
}
