//! `version`

use clap::Args as ClapArgs;
use serde_json::json;

use super::Status;
use super::output::{Format, print, print_json};
use crate::probe;

/// Options of `version`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Status> {
    let (version, object) = (env!("CARGO_PKG_VERSION"), probe::embedded().is_some());
    match args.output {
        Format::Json => print_json(&json!({
            "apiVersion": "reaper/v1", "kind": "Version", "version": version, "bpfObject": object,
        }))?,
        Format::Table => {
            let bpf = if object { "with" } else { "without" };
            print(&format!("cgroup-reaper {version} ({bpf} BPF object)\n"))?;
        }
    }
    Ok(Status::Success)
}
