//! `cargo xtask bench`: measures what the project promises, on this machine.

mod boot;
mod observer;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The probes: cost for processes that concern nobody, losses, lag, memory; beside bpftrace
    Observer(observer::Args),
    /// A start of containerd: clean, with busy dead bundles, and after `sweep`
    Boot(boot::Args),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Observer(args) => observer::run(args),
        Bench::Boot(args) => boot::run(args),
    }
}
