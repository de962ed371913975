//! Runs the measurements of `tests/benches/reap`.

use clap::Args as ClapArgs;

use crate::cargo::{cargo, run as succeed};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Only leaks of so many processes: 1, 10, 100 or 1000
    #[arg(long)]
    only: Option<u32>,
    /// How many leaks each way; fewer of the large ones
    #[arg(long, default_value_t = 60)]
    leaks: u32,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut bench = cargo(&["bench", "--locked", "--package", "reaper-tests", "--bench", "reap", "--"]);
    bench.args(["--leaks", &args.leaks.to_string()]);
    if let Some(count) = args.only {
        bench.args(["--only", &count.to_string()]);
    }
    succeed(&mut bench)
}
