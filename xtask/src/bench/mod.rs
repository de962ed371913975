//! `cargo xtask bench`: measures what the project promises, on this machine.

mod boot;
mod observer;
mod reap;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The probes: cost for processes that concern nobody, losses, lag, memory; beside bpftrace
    Observer(observer::Args),
    /// A start of containerd: clean, with busy dead bundles, and after `sweep`
    Boot(boot::Args),
    /// A reap beside a minimal C loop: 1 to 1,000 processes, frozen and not, v1 and v2
    Reap(reap::Args),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Observer(args) => observer::run(args),
        Bench::Boot(args) => boot::run(args),
        Bench::Reap(args) => reap::run(args),
    }
}
