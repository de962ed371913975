//! What this process itself costs, under the names that every exporter uses.

use prometheus::{Counter, Gauge};

use super::family::Maker;

/// Standard metrics, read when a page is rendered. What cannot be read keeps its last value.
#[derive(Clone, Debug)]
pub(super) struct ProcessMetrics {
    cpu: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    resident: Gauge,
    virtual_memory: Gauge,
    start: Gauge,
    threads: Gauge,
}

impl ProcessMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            cpu: make.standard_counter(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            open_fds: make.standard_gauge("process_open_fds", "Number of open file descriptors.")?,
            max_fds: make.standard_gauge("process_max_fds", "Maximum number of open file descriptors.")?,
            resident: make
                .standard_gauge("process_resident_memory_bytes", "Resident memory size in bytes.")?,
            virtual_memory: make
                .standard_gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")?,
            start: make.standard_gauge(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
            threads: make.standard_gauge("process_threads", "Number of OS threads in the process.")?,
        })
    }

    pub(super) fn read(&self) -> procfs::ProcResult<()> {
        let process = procfs::process::Process::myself()?;
        let stat = process.stat()?;
        let seconds = |ticks: u64| float(ticks) / float(procfs::ticks_per_second());
        let cpu = seconds(stat.utime.saturating_add(stat.stime));
        self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
        self.resident.set(float(stat.rss.saturating_mul(procfs::page_size())));
        self.virtual_memory.set(float(stat.vsize));
        self.start.set(float(procfs::boot_time_secs()?) + seconds(stat.starttime));
        self.threads.set(float(u64::try_from(stat.num_threads).unwrap_or(0)));
        self.open_fds.set(float(u64::try_from(process.fd_count()?).unwrap_or(u64::MAX)));
        let limits = process.limits()?;
        self.max_fds.set(match limits.max_open_files.soft_limit {
            procfs::process::LimitValue::Unlimited => f64::INFINITY,
            procfs::process::LimitValue::Value(value) => float(value),
        });
        Ok(())
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a sample is a float; 53 bits are enough"
)]
const fn float(value: u64) -> f64 {
    value as f64
}
