//! Builds the product and runs the measurements of `tests/benches/observer` on it.

use std::process::{Command, Stdio};

use clap::Args as ClapArgs;

use crate::build;
use crate::cargo::{cargo, run as succeed};
use crate::setup::say;

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// How many processes die in the watched cgroup
    #[arg(long, default_value_t = 1_000_000)]
    deaths: u64,
    /// Only this part: cost, slowdown, lag, deaths, decision or memory
    #[arg(long)]
    only: Option<String>,
    /// All figures once more as JSON, on the last line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let product = build::product()?;
    let object = build::object()?;
    install_bpftrace();
    let mut bench = cargo(&["bench", "--locked", "--package", "reaper-tests", "--bench", "observer", "--"]);
    bench.args(["--deaths", &args.deaths.to_string()]).arg("--product").arg(product);
    if let Some(part) = &args.only {
        bench.args(["--only", part]);
    }
    if args.json {
        bench.arg("--json");
    }
    succeed(bench.env("REAPER_BPF_OBJECT", object))
}

/// For comparison only: without it the rest is measured, and the report says so.
fn install_bpftrace() {
    let there =
        |command: &mut Command| command.stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if there(Command::new("bpftrace").arg("--version")) {
        return;
    }
    say("installing bpftrace, to compare with");
    if !there(Command::new("apt-get").args(["install", "--yes", "--no-install-recommends", "bpftrace"])) {
        say("bpftrace could not be installed");
    }
}
