//! The probes: loads the BPF programs, attaches them, and hands out what they report as [`Event`]s.
//!
//! What is worth reporting is decided in the kernel: cgroups that were given to [`Probe::track`] and all that is
//! made below them, processes that were given to [`Probe::watch`] and what shims and runtimes start. Everything
//! else costs a look into one line of memory. Nothing is pinned: if the daemon dies, its programs go with it.
//!
//! # Invariants
//! - An event is a hint. Whoever acts reads again.
//! - What the kernel could not report is counted; a change of [`Probe::losses`] means a resync.
//! - A probe that would read the wrong field does not start: see `check`.

mod btf;
mod check;
mod error;
mod filter;
mod format;
mod guard;
mod load;
mod losses;
mod ring;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::Ebpf;
use aya::maps::{HashMap, MapData, MapError, PerCpuArray};
use reaper_ebpf::abi::{CgroupKey, START_UNKNOWN, TRACKED_MARK, WATCH_ROOT, WatchEntry, cgroup_key, name};

use crate::event::Event;
use crate::ident::{CgroupRef, ProcessKey, StartTicks};

pub use btf::LayoutError;
pub use error::ProbeError;
pub use format::FormatError;
pub use guard::{Guard, GuardError};
pub use losses::{Loss, Losses};

/// `linux/bpf.h`: the entry must be new.
const BPF_NOEXIST: u64 = 1;

/// Which programs report. Best first; below both there are only periodic looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Typed tracepoints: need the kernel's type information, and know everything.
    Btf,
    /// Classic tracepoints: need tracefs, and know processes by number only; see [`Event::identified`].
    Classic,
}

/// The attached programs, and the maps that steer them. Dropping it detaches them, whatever is done with [`Rings`].
pub struct Probe {
    level: Level,
    programs: Ebpf,
    tracked: HashMap<MapData, CgroupKey, u32>,
    watch: HashMap<MapData, u32, WatchEntry>,
    filter: filter::Filter,
    lost: PerCpuArray<MapData, u64>,
    guard: Result<Guard, GuardError>,
    undecodable: Arc<AtomicU64>,
}

/// What the programs report, apart from the rest so that it can be read by whoever does nothing else.
pub struct Rings {
    cgroups: ring::Ring,
    processes: ring::Ring,
}

/// Attached programs and what they report.
pub type Loaded = (Probe, Rings);

/// Levels that do not work here, and why.
pub type Failed = Vec<(Level, ProbeError)>;

/// The BPF object that was built with this binary, if there was one.
pub fn embedded() -> Option<&'static [u8]> {
    let object: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/reaper-ebpf.o"));
    (!object.is_empty()).then_some(object)
}

// === impl Level ===

impl Level {
    /// All, in the order of preference.
    pub const ALL: [Self; 2] = [Self::Btf, Self::Classic];

    /// The programs that stay attached.
    const fn programs(self) -> &'static [name::Program] {
        match self {
            Self::Btf => &name::PROGRAMS,
            Self::Classic => &name::CLASSIC_PROGRAMS,
        }
    }

    const fn self_check(self) -> name::Program {
        match self {
            Self::Btf => name::SELF_CHECK,
            Self::Classic => name::CLASSIC_SELF_CHECK,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Btf => "btf",
            Self::Classic => "classic",
        })
    }
}

// === impl Probe ===

impl Probe {
    /// Loads the object, checks what it reads, and attaches it. Events are kept from then on, so attach first,
    /// then [`track`](Self::track) and walk: no gap.
    ///
    /// Blocks for some 50 ms, needs `CAP_BPF` and `CAP_PERFMON`, and a tokio runtime with I/O around it.
    pub fn load(object: &[u8], level: Level) -> Result<Loaded, ProbeError> {
        load::load(object, level)
    }

    /// The first of these levels that works here, if any does, and why those before it do not.
    pub fn first_of(levels: &[Level], object: &[u8]) -> (Option<Loaded>, Failed) {
        let mut failed = vec![];
        for level in levels {
            match Self::load(object, *level) {
                Ok(loaded) => return (Some(loaded), failed),
                Err(error) => failed.push((*level, error)),
            }
        }
        (None, failed)
    }

    /// The guard on rmdir, for whoever removes; why there is none, if so. Taken once.
    pub fn take_guard(&mut self) -> Result<Guard, GuardError> {
        std::mem::replace(&mut self.guard, Err(GuardError::Missing))
    }

    /// What this is.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Reports this cgroup's events, and those of every cgroup made below it from now on. What was made below
    /// it before has to be tracked by itself. False if it was tracked already, by whatever made it known.
    pub fn track(&mut self, cgroup: CgroupRef) -> Result<bool, ProbeError> {
        match self.tracked.insert(key(cgroup), TRACKED_MARK, BPF_NOEXIST) {
            Ok(()) => Ok(true),
            Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(false)
            }
            Err(source) => Err(ProbeError::Track { cgroup, source }),
        }
    }

    /// Forgets a cgroup; one that was not tracked is no error. The kernel forgets removed ones itself.
    pub fn untrack(&mut self, cgroup: CgroupRef) -> Result<(), ProbeError> {
        ignore_missing(self.tracked.remove(&key(cgroup)))
            .map_err(|source| ProbeError::Track { cgroup, source })
    }

    /// Reports this process's life and what it starts. If the process was gone already the entry stays, at level
    /// `classic` for whoever has its number now: look again afterwards, and [`unwatch`](Self::unwatch) it then. False
    /// if it was watched already.
    pub fn watch(&mut self, process: ProcessKey) -> Result<bool, ProbeError> {
        let number = process.tgid.get();
        let known = self.watch.get(&number, 0).is_ok_and(|[since, _]| {
            since == START_UNKNOWN || StartTicks::from_boot_nanos(since) == process.start
        });
        self.filter
            .mark(number)
            .and_then(|()| self.watch.insert(number, [process.start.boot_nanos(), WATCH_ROOT], 0))
            .map_err(|source| ProbeError::Watch { process, source })?;
        Ok(!known)
    }

    /// Forgets a process; one that was not watched is no error. The kernel forgets ended ones itself.
    pub fn unwatch(&mut self, process: ProcessKey) -> Result<(), ProbeError> {
        ignore_missing(self.watch.remove(&process.tgid.get()))
            .map_err(|source| ProbeError::Watch { process, source })
    }

    /// Makes what concerns nobody cheap again: clears the marks of numbers that were watched and are no more. Nothing
    /// is lost by it, nor if it fails or is never called.
    pub fn tidy(&mut self) -> Result<(), ProbeError> {
        self.filter.rebuild(&self.watch).map_err(ProbeError::Tidy)
    }

    /// Everything that was not reported since the load.
    pub fn losses(&self) -> Result<Losses, ProbeError> {
        let undecodable = self.undecodable.load(Ordering::Relaxed);
        losses::read(&self.lost, &self.programs, self.level, undecodable)
    }
}

// === impl Rings ===

impl Rings {
    /// Waits until there are events, and returns them in order of time: at most 4,096 of each ring, the rest
    /// comes with the next call. Cancel safe.
    pub async fn next_batch(&mut self) -> Result<Vec<Event>, ProbeError> {
        let mut events = Vec::new();
        let (cgroups, processes) = (&mut self.cgroups, &mut self.processes);
        poll_fn(|context| {
            let first = cgroups.poll_drain(context, &mut events);
            let second = processes.poll_drain(context, &mut events);
            ring::either(first, second)
        })
        .await?;
        events.sort_by_key(|event| event.at);
        Ok(events)
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("level", &self.level).finish_non_exhaustive()
    }
}

const fn key(cgroup: CgroupRef) -> CgroupKey {
    cgroup_key(cgroup.hierarchy.0, cgroup.id.0)
}

/// `bpf_map_delete_elem` says ENOENT for a key that is not there.
fn ignore_missing(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
