//! How much slower a storm of processes becomes that concerns nobody: without, with, without, with, in turn.
//!
//! Each storm with programs is compared with the two without beside it, so that a slow minute of the machine slows
//! both. The middle of all comparisons is given, and how far the storms without are from each other: what is below that
//! is noise.

use anyhow::Result;

use crate::bpftrace::Bpftrace;
use crate::stage::{Make, Storm, exact, median, probe};

const ROUNDS: usize = 25;

pub(crate) fn run() -> Result<()> {
    for (make, count, name) in [(Make::Fork, 1_500, "fork and end"), (Make::Exec, 500, "fork, exec and end")]
    {
        let mut storm = Storm::new(make, count)?;
        storm.blow()?;
        compare(&mut storm, count, name, "cgroup-reaper", probe)?;
        if let Err(error) = compare(&mut storm, count, name, "bpftrace", Bpftrace::attach) {
            println!("  bpftrace: not measured: {error:#}");
        }
    }
    Ok(())
}

fn compare<T>(
    storm: &mut Storm,
    count: u64,
    what: &str,
    with: &str,
    attach: impl Fn() -> Result<T>,
) -> Result<()> {
    let mut without = vec![exact(storm.blow()?)];
    let (mut ratios, mut noise) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let attached = attach()?;
        let slowed = exact(storm.blow()?);
        drop(attached);
        let before = without.last().copied().unwrap_or(f64::NAN);
        let after = exact(storm.blow()?);
        without.push(after);
        ratios.push(slowed / f64::midpoint(before, after));
        noise.push((after / before - 1.0).abs());
    }
    println!(
        "storm that concerns nobody, {what}: {:.1} us a process without, {:+.1} % with {with} \
         (middle of {ROUNDS} rounds of {count}; two without differ by {:.1} %)",
        median(&without) / exact(count) / 1000.0,
        (median(&ratios) - 1.0) * 100.0,
        median(&noise) * 100.0,
    );
    Ok(())
}
