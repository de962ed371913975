//! How much slower a storm of processes becomes that concerns nobody: without, with, without, with, in turn.
//!
//! Storm and processes share one processor, the programs are attached from another. Each short window with programs is
//! compared with the two without beside it, so that a slow moment of the machine slows both. Given are the middle of all
//! ratios, the interval that holds the true middle in 95 of 100 cases (by ranks, so that outliers move nothing), and how
//! far windows without are from each other: what is below that is noise.

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::bpftrace::Bpftrace;
use crate::stage::{Make, Storm, exact, median, probe, sorted};
use crate::summary::Summary;

const ROUNDS: usize = 120;
/// bpftrace needs a second to attach.
const ROUNDS_OF_BPFTRACE: usize = 30;
/// Detaching waits for the kernel's readers and frees afterwards; that is not part of a window.
const SETTLE: Duration = Duration::from_millis(20);
const TARGET: f64 = 1.0;

/// Percent by which the storm was slower.
struct Slowdown {
    middle: f64,
    from: f64,
    to: f64,
    noise: f64,
    /// Nanoseconds a process without programs.
    process: f64,
}

pub(crate) fn run(summary: &mut Summary) -> Result<()> {
    for (make, count, name) in [(Make::Fork, 400, "fork and end"), (Make::Exec, 120, "fork, exec and end")] {
        let mut storm = Storm::new(make, count)?;
        pin(storm.pid())?;
        storm.blow()?;
        let ours = compare(&mut storm, count, ROUNDS, probe)?;
        ours.show(name, "cgroup-reaper", ROUNDS);
        summary.judge(format!("storm slowdown, {name}"), ours.middle, "%", TARGET);
        summary.tell(format!("  95 of 100 say at least, {name}"), ours.from, "%");
        summary.tell(format!("  95 of 100 say at most, {name}"), ours.to, "%");
        summary.tell(format!("  a process without, {name}"), ours.process / 1000.0, "us");
        match compare(&mut storm, count, ROUNDS_OF_BPFTRACE, Bpftrace::attach) {
            Ok(theirs) => {
                theirs.show(name, "bpftrace", ROUNDS_OF_BPFTRACE);
                summary.tell(format!("  with bpftrace, {name}"), theirs.middle, "%");
            }
            Err(error) => println!("  bpftrace: not measured: {error:#}"),
        }
    }
    Ok(())
}

/// To the last processor; children stay there.
fn pin(pid: u32) -> Result<()> {
    let last = std::thread::available_parallelism()?.get().saturating_sub(1);
    let mut set = CpuSet::new();
    set.set(last)?;
    sched_setaffinity(Pid::from_raw(i32::try_from(pid)?), &set).context("pin the storm")
}

fn compare<T>(
    storm: &mut Storm,
    count: u64,
    rounds: usize,
    attach: impl Fn() -> Result<T>,
) -> Result<Slowdown> {
    let mut without = vec![exact(storm.blow()?)];
    let (mut ratios, mut noise) = (vec![], vec![]);
    for _ in 0..rounds {
        let attached = attach()?;
        std::thread::sleep(SETTLE);
        let slowed = exact(storm.blow()?);
        drop(attached);
        std::thread::sleep(SETTLE);
        let before = without.last().copied().unwrap_or(f64::NAN);
        let after = exact(storm.blow()?);
        without.push(after);
        ratios.push((slowed / f64::midpoint(before, after) - 1.0) * 100.0);
        noise.push((after / before - 1.0).abs() * 100.0);
    }
    let (from, to) = interval(&ratios);
    let process = median(&without) / exact(count);
    Ok(Slowdown { middle: median(&ratios), from, to, noise: median(&noise), process })
}

/// Ranks n/2 -+ 0.98 sqrt n of the sorted ratios hold the true middle with 95 % (binomial, about normal).
fn interval(ratios: &[f64]) -> (f64, f64) {
    let sorted = sorted(ratios);
    let half = sorted.len() / 2;
    // At least 0.98 times the root.
    let reach = sorted.len().isqrt().saturating_add(1);
    let at = |rank: usize| sorted.get(rank.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN);
    (at(half.saturating_sub(reach)), at(half.saturating_add(reach)))
}

// === impl Slowdown ===

impl Slowdown {
    fn show(&self, what: &str, with: &str, rounds: usize) {
        println!(
            "storm that concerns nobody, {what}: {:.1} us a process without, {:+.2} % with {with}, 95 of 100 within \
             {:+.2} to {:+.2} % ({rounds} rounds; two without differ by {:.1} %)",
            self.process / 1000.0,
            self.middle,
            self.from,
            self.to,
            self.noise,
        );
    }
}
