//! What the observer costs, what it loses, how late it is: `cargo xtask bench observer`.
#![expect(clippy::disallowed_methods, reason = "a measurement makes and removes what is observed")]
#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

mod bpftrace;
mod cost;
mod deaths;
mod floor;
mod lag;
mod memory;
mod place;
mod slowdown;
mod stage;

use std::path::PathBuf;

use clap::Parser;

/// What is measured.
#[derive(Debug, Parser)]
struct Args {
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How many processes die in the watched cgroup
    #[arg(long, default_value_t = 1_000_000)]
    deaths: u64,
    /// The product, for its memory
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
    /// Resident memory of the daemon
    Memory,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let wanted = |part| args.only.is_none_or(|only| only == part);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    if wanted(Part::Cost) {
        cost::run()?;
    }
    if wanted(Part::Slowdown) {
        slowdown::run()?;
    }
    if wanted(Part::Lag) {
        runtime.block_on(lag::run())?;
    }
    if wanted(Part::Deaths) {
        runtime.block_on(deaths::run(args.deaths))?;
    }
    match &args.product {
        Some(product) if wanted(Part::Memory) => memory::run(product)?,
        None if wanted(Part::Memory) => println!("memory: not measured, no --product"),
        Some(_) | None => {}
    }
    Ok(())
}
