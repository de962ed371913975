//! What the observer costs, what it loses, how late it is: `cargo xtask bench observer`.
#![expect(clippy::disallowed_methods, reason = "a measurement makes and removes what is observed")]
#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

mod bpftrace;
mod cost;
mod deaths;
mod decision;
mod floor;
mod lag;
mod memory;
mod place;
mod slowdown;
mod stage;
mod summary;

use std::path::PathBuf;

use clap::Parser;
use summary::Summary;

/// What is measured.
#[derive(Debug, Parser)]
struct Args {
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How many processes die in the watched cgroup
    #[arg(long, default_value_t = 1_000_000)]
    deaths: u64,
    /// All figures once more as JSON, on the last line
    #[arg(long)]
    json: bool,
    /// The product, for its memory and its verdicts
    #[arg(long, env = "REAPER_BINARY")]
    product: Option<PathBuf>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Nanoseconds for each fork, exec and exit that concerns nobody
    Cost,
    /// How much slower a storm becomes that concerns nobody
    Slowdown,
    /// Events of many processes that die in a watched cgroup
    Deaths,
    /// From the kernel's stamp to the reader
    Lag,
    /// From the kernel's stamp to the verdict
    Decision,
    /// Resident memory of the daemon
    Memory,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let wanted = |part| args.only.is_none_or(|only| only == part);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let mut summary = Summary::default();
    if wanted(Part::Cost) {
        cost::run(&mut summary)?;
    }
    if wanted(Part::Slowdown) {
        slowdown::run(&mut summary)?;
    }
    if wanted(Part::Lag) {
        runtime.block_on(lag::run(&mut summary))?;
    }
    if wanted(Part::Deaths) {
        runtime.block_on(deaths::run(args.deaths, &mut summary))?;
    }
    match &args.product {
        Some(product) => {
            if wanted(Part::Decision) {
                runtime.block_on(decision::run(product, &mut summary))?;
            }
            if wanted(Part::Memory) {
                memory::run(product, &mut summary)?;
            }
        }
        None => println!("verdicts and memory: not measured, no --product"),
    }
    println!("{}", summary.text());
    if args.json {
        println!("{}", summary.json()?);
    }
    Ok(())
}
