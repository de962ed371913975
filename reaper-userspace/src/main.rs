//! The `cgroup-reaper` binary.

use std::process::ExitCode;

use clap::Parser as _;
use reaper_userspace::cli::{self, Cli};

fn main() -> ExitCode {
    match cli::main(Cli::parse()) {
        Ok(status) => status.into(),
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
