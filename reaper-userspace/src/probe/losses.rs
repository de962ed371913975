//! What the kernel could not report.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::Ebpf;
use aya::maps::{MapData, PerCpuArray};
use reaper_ebpf::abi::name::Program;
use reaper_ebpf::abi::{Counter, Kind};

use super::{Level, ProbeError};

/// `/proc/PID/fdinfo` of a program has some 300 bytes.
const MAX_FDINFO_BYTES: u64 = 16 << 10;

/// A way to lose something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// No room in the ring for the making of a cgroup.
    Mkdir,
    /// No room in the ring for the removal of a cgroup.
    Rmdir,
    /// No room in the ring for a cgroup's becoming populated or empty.
    Populated,
    /// No room in the ring for a cgroup's becoming frozen or thawed.
    Frozen,
    /// No room in the ring for a new process.
    Fork,
    /// No room in the ring for a new program.
    Exec,
    /// No room in the ring for the end of a process.
    Exit,
    /// No room in the ring for a signal of our own.
    Kill,
    /// A new cgroup is not tracked: the map is full.
    TrackedFull,
    /// A new process is not watched: the map is full.
    WatchFull,
    /// The kernel did not run a program because it was running on that CPU already
    /// (`kernel/trace/bpf_trace.c:__bpf_trace_run`), or at level `classic` any tracing program (`trace_call_bpf`). Not
    /// counted before Linux 5.12, and at level `classic` not before 6.7.
    Skipped,
    /// A record was no event: the object and this program do not fit together.
    Undecodable,
}

/// Counts since the load. What grew has been lost meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses([u64; Loss::ALL.len()]);

// === impl Loss ===

impl Loss {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Mkdir,
        Self::Rmdir,
        Self::Populated,
        Self::Frozen,
        Self::Fork,
        Self::Exec,
        Self::Exit,
        Self::Kill,
        Self::TrackedFull,
        Self::WatchFull,
        Self::Skipped,
        Self::Undecodable,
    ];

    /// A word for logs and labels.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Mkdir => "mkdir",
            Self::Rmdir => "rmdir",
            Self::Populated => "populated",
            Self::Frozen => "frozen",
            Self::Fork => "fork",
            Self::Exec => "exec",
            Self::Exit => "exit",
            Self::Kill => "kill",
            Self::TrackedFull => "tracked_full",
            Self::WatchFull => "watch_full",
            Self::Skipped => "skipped",
            Self::Undecodable => "undecodable",
        }
    }

    /// Where the programs count it; `None` if it is counted elsewhere.
    const fn counter(self) -> Option<Counter> {
        match self {
            Self::Mkdir => Some(Counter::of(Kind::MKDIR)),
            Self::Rmdir => Some(Counter::of(Kind::RMDIR)),
            Self::Populated => Some(Counter::of(Kind::POPULATED)),
            Self::Frozen => Some(Counter::of(Kind::FROZEN)),
            Self::Fork => Some(Counter::of(Kind::FORK)),
            Self::Exec => Some(Counter::of(Kind::EXEC)),
            Self::Exit => Some(Counter::of(Kind::EXIT)),
            Self::Kill => Some(Counter::of(Kind::KILL)),
            Self::TrackedFull => Some(Counter::TRACKED_FULL),
            Self::WatchFull => Some(Counter::WATCH_FULL),
            Self::Skipped | Self::Undecodable => None,
        }
    }
}

// === impl Losses ===

impl Losses {
    /// How often this happened.
    pub fn get(&self, loss: Loss) -> u64 {
        self.iter().find_map(|(found, count)| (found == loss).then_some(count)).unwrap_or_default()
    }

    /// Every way and its count.
    pub fn iter(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        Loss::ALL.into_iter().zip(self.0)
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

pub(super) fn read(
    lost: &PerCpuArray<MapData, u64>,
    programs: &Ebpf,
    level: Level,
    undecodable: u64,
) -> Result<Losses, ProbeError> {
    let mut losses = Losses::default();
    for (loss, count) in Loss::ALL.into_iter().zip(&mut losses.0) {
        *count = match (loss.counter(), loss) {
            (Some(Counter(slot)), _) => sum(lost, slot)?,
            (None, Loss::Skipped) => skipped(programs, level)?,
            (None, _) => undecodable,
        };
    }
    Ok(losses)
}

fn sum(lost: &PerCpuArray<MapData, u64>, slot: u32) -> Result<u64, ProbeError> {
    let values = lost.get(&slot, 0).map_err(ProbeError::Counters)?;
    Ok(values.iter().fold(0, |sum, count| sum.saturating_add(*count)))
}

fn skipped(programs: &Ebpf, level: Level) -> Result<u64, ProbeError> {
    level.programs().iter().try_fold(0, |sum: u64, &Program { name: program, .. }| {
        let found = programs.program(program).ok_or(ProbeError::Program { program })?;
        let count = recursion_misses(found).map_err(|source| ProbeError::Skipped { program, source })?;
        Ok(sum.saturating_add(count))
    })
}

fn recursion_misses(program: &aya::programs::Program) -> io::Result<u64> {
    let fd = program.fd().map_err(io::Error::other)?.as_fd().as_raw_fd();
    let mut text = String::new();
    File::open(format!("/proc/self/fdinfo/{fd}"))?.take(MAX_FDINFO_BYTES).read_to_string(&mut text)?;
    parse_recursion_misses(&text)
}

/// The line was added with the counter itself; a line that cannot be read is an error, not a zero.
fn parse_recursion_misses(fdinfo: &str) -> io::Result<u64> {
    match fdinfo.lines().find_map(|line| line.strip_prefix("recursion_misses:")) {
        None => Ok(0),
        Some(count) => count.trim().parse().map_err(io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_cannot_be_read_is_an_error_not_a_zero() {
        assert_eq!(parse_recursion_misses("prog_id:\t4\nrecursion_misses:\t17\n").unwrap(), 17);
        assert_eq!(parse_recursion_misses("prog_id:\t4\n").unwrap(), 0);
        assert!(parse_recursion_misses("recursion_misses:\tmany\n").is_err());
    }

    #[test]
    fn every_loss_has_its_own_label_and_counter() {
        let labels: std::collections::HashSet<_> = Loss::ALL.iter().map(|loss| loss.label()).collect();
        assert_eq!(labels.len(), Loss::ALL.len());
        let counted: Vec<u32> =
            Loss::ALL.iter().filter_map(|loss| loss.counter()).map(|counter| counter.0).collect();
        let counters: std::collections::HashSet<_> = counted.iter().collect();
        assert_eq!(counters.len(), counted.len());
        assert_eq!(counted.len() + [Loss::Skipped, Loss::Undecodable].len(), Loss::ALL.len());
    }

    #[test]
    fn losses_are_told_apart_and_summed() {
        let mut losses = Losses::default();
        let slot = |loss| Loss::ALL.iter().position(|other| *other == loss).unwrap();
        losses.0[slot(Loss::Exit)] = 3;
        losses.0[slot(Loss::Undecodable)] = 4;
        assert_eq!(
            (losses.get(Loss::Exit), losses.get(Loss::Undecodable), losses.get(Loss::Fork)),
            (3, 4, 0)
        );
        assert_eq!(losses.total(), 7);
    }
}
