//! placeholder

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Check {
    /// The layer table of the userspace crate is a DAG and is kept
    Layers,
}

pub(crate) fn run(_check: &Check) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
