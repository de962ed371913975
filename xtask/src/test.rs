//! placeholder

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
