//! Every check and test, in stages; what CI runs.
//!
//! Each stage runs whatever became of the ones before it, so that one run shows all there is to repair. The last line
//! printed is `N passed, N failed`.
#![expect(clippy::print_stdout, reason = "a command speaks to the terminal")]

mod adversary;
mod stage;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, Subcommand};

use crate::check::{self, Check};
use crate::{build, lab, lint, setup};
use stage::{Group, STAGES, Stage};
use tally::Tally;

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Leave the end to end tests and the whole nodes out
    #[arg(long)]
    fast: bool,
    #[command(subcommand)]
    only: Option<Only>,
}

/// One long test alone.
#[derive(Debug, Subcommand)]
enum Only {
    /// Reap real leaks while something is done to the node between any two steps
    Adversary(adversary::Args),
    /// Die at every step of an act, and look at what the next start makes of it
    Crash,
}

/// What has been run so far.
#[derive(Debug, Default)]
struct Run {
    groups: Vec<(Group, Tally)>,
    /// Stages that failed by themselves: no test stands for them in a tally.
    broken: Vec<String>,
    /// Stages with tests that failed, each of which is in a tally.
    failed: Vec<String>,
    times: Vec<(String, Duration)>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.only {
        None => everything(args),
        Some(Only::Adversary(args)) => adversary::run(args),
        Some(Only::Crash) => adversary::crash(),
    }
}

fn everything(args: &Args) -> anyhow::Result<ExitCode> {
    setup::ensure()?;
    let mut run = Run::default();
    // First, because the other builds embed the BPF object that this one makes.
    let product = run.step("build", build::product);
    run.step("lint", lint::run);
    run.step("check", || check::run(Check::All));
    for stage in STAGES.iter().filter(|stage| !(args.fast && stage.group == Group::EndToEnd)) {
        run.tests(stage, product.as_ref());
    }
    if !args.fast {
        run.step("lab", lab::share);
    }
    Ok(run.close())
}

// === impl Run ===

impl Run {
    /// Runs something that is no test.
    fn step<T>(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        let result = self.timed(name, step);
        result.map_err(|error| self.broke(name, &error)).ok()
    }

    fn tests(&mut self, stage: &Stage, product: Option<&PathBuf>) {
        let outcome = self.timed(stage.name, || stage.run(product));
        match outcome {
            Ok(tally) => {
                self.groups.push((stage.group, tally));
                if tally.failed > 0 {
                    self.failed.push(stage.name.to_owned());
                } else if let Some(why) = tally.why_not_whole() {
                    self.broke(stage.name, &anyhow::anyhow!("{why}"));
                }
            }
            Err(error) => self.broke(stage.name, &error),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "shows a person how long a stage took")]
    fn timed<T>(&mut self, name: &str, step: impl FnOnce() -> T) -> T {
        println!("\n=== {name}");
        let start = Instant::now();
        let result = step();
        self.times.push((name.to_owned(), start.elapsed()));
        result
    }

    fn broke(&mut self, name: &str, error: &anyhow::Error) {
        println!("{name} failed: {error:#}");
        self.broken.push(name.to_owned());
    }

    fn sum(&self, wanted: impl Fn(Group) -> bool) -> Tally {
        self.groups.iter().filter(|(group, _)| wanted(*group)).map(|(_, tally)| *tally).sum()
    }

    fn close(&self) -> ExitCode {
        println!("\n=== summary");
        for (name, took) in &self.times {
            let failed = self.broken.contains(name) || self.failed.contains(name);
            let mark = if failed { "  FAILED" } else { "" };
            println!("{:>7.1} s  {name}{mark}", took.as_secs_f64());
        }
        let count = |wanted| self.sum(|group| group == wanted).run();
        let (unit, kernel, end) = (count(Group::Unit), count(Group::Kernel), count(Group::EndToEnd));
        println!("unit {unit}, kernel {kernel}, end to end {end} tests");
        let all = self.sum(|_| true);
        let failed = all.failed.saturating_add(self.broken.len());
        println!("{} passed, {failed} failed", all.passed);
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
