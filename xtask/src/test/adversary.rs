//! The adversary alone, for as many rounds as wanted.

use std::process::ExitCode;

use clap::Args as ClapArgs;

use crate::cargo::{cargo, run as run_to_end};

const TEST: &[&str] = &["test", "--locked", "--package", "reaper-tests", "--test", "adversary"];

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// How many rounds
    #[arg(long, default_value_t = 10_000)]
    rounds: u64,
    /// Number of the first round
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// What the rounds are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End earlier, after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Rounds at a time; by default four a processor, as most of a round is waiting
    #[arg(long)]
    workers: Option<u64>,
    /// Without optimisation: builds faster, plays slower
    #[arg(long)]
    debug: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut command = cargo(TEST);
    if !args.debug {
        command.arg("--release");
    }
    command.arg("--");
    let numbers = [
        ("--rounds", Some(args.rounds)),
        ("--first", Some(args.first)),
        ("--seed", Some(args.seed)),
        ("--workers", args.workers),
        ("--seconds", args.seconds),
    ];
    for (flag, number) in numbers {
        if let Some(number) = number {
            command.args([flag, &number.to_string()]);
        }
    }
    run_to_end(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn crash() -> anyhow::Result<ExitCode> {
    run_to_end(cargo(TEST).args(["--", "--crash"]))?;
    Ok(ExitCode::SUCCESS)
}
