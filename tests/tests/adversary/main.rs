//! The adversary: real reaps of real cgroups, with something done to the node between any two steps.
//!
//! `cargo xtask test adversary --rounds N --seed S`. Each round makes a leak by hand, proves it with the product's own
//! verdict, and reaps it; at drawn places of the protocol (`reap::hook`) it is disturbed. After each round every
//! process that was not part of the leak must live, and the leak must be gone or named. A round is drawn from seed and
//! number alone, so a failure prints the command that plays it again. With `--crash` (`cargo xtask test crash`) the act
//! dies at each of the places instead, and the next start has to make the best of it.
//!
//! Each worker lives in a PID namespace and a mount namespace of its own: numbers can be reused at will, and nothing
//! outlives it.
#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    clippy::arithmetic_side_effects,
    reason = "makes, disturbs and ends what is its own, reads the clock, and counts"
)]

#[path = "../by_hand/mod.rs"]
mod by_hand;

mod bundle;
mod crash;
mod options;
mod process;
mod random;
mod records;
mod round;
mod stage;
mod tally;
mod trouble;
mod worker;
mod world;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result};

use options::{Options, Role};
use tally::Tally;

fn main() -> Result<ExitCode> {
    let options = Options::parse(std::env::args().skip(1))?;
    match options.role {
        Role::Conductor => conduct(&options),
        Role::Worker(number) => worker::enter(&options, number).map(|()| ExitCode::SUCCESS),
        Role::Inside(number) => worker::run(&options, number).map(|()| ExitCode::SUCCESS),
    }
}

fn conduct(options: &Options) -> Result<ExitCode> {
    println!("adversary: seed {}, {} workers", options.seed, options.workers);
    let start = Instant::now();
    // A crash is no matter of chance: one worker plays them all.
    let crew = if options.crash { 1 } else { options.workers };
    let workers: Vec<Child> = (0..crew).map(|number| spawn(options, number)).collect::<Result<_>>()?;
    let mut total = Tally::default();
    let mut broken = 0_u32;
    for worker in workers {
        let (tally, success) = listen(worker)?;
        broken += u32::from(!success);
        total.add(tally);
    }
    if options.crash {
        println!("{} acts killed at a step, each closed with what was left, and finished", total.rounds);
    } else {
        print!("{}", total.page(start.elapsed()));
    }
    for failure in &total.failures {
        println!("FAILED {failure}");
        println!("  play it again: cargo xtask test adversary {}", options.replay(failure.round));
    }
    let failed = total.failures.len() + usize::try_from(broken)?;
    let passed = usize::from(failed == 0 && total.rounds > 0);
    let word = if passed == 1 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {} failed; 0 ignored", 1 - passed);
    Ok(if passed == 1 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn spawn(options: &Options, number: u64) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(options.words(&Role::Worker(number))).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("start a worker")
}

/// The last count that a worker gave, and whether it ended well.
fn listen(mut worker: Child) -> Result<(Tally, bool)> {
    let mut tally = Tally::default();
    for line in worker.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        tally = serde_json::from_str(&line?)?;
    }
    Ok((tally, worker.wait()?.success()))
}
