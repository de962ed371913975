//! `doctor`

use clap::Args as ClapArgs;

use super::Status;
use super::options::Node;

/// Options of `doctor`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    node: Node,
}

pub(super) async fn run(_args: Args) -> anyhow::Result<Status> {
    Ok(Status::Unsupported)
}
