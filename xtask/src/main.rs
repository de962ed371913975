//! Developer commands: `cargo xtask help` lists them. One file each.

mod bench;
mod build;
mod cargo;
mod check;
mod demo;
mod lab;
mod lint;
mod setup;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developer commands of cgroup-reaper", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what building and testing need (Debian, as root), or print the commands to type
    Setup,
    /// Build target/release/cgroup-reaper, one static binary with the BPF object inside
    Build(build::Args),
    /// See the main job: real leaks on a throwaway containerd, found and reaped
    Demo(demo::Args),
    /// Run every check and test (what CI runs)
    Test(test::Args),
    /// Measure what the project promises
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Whole Debian nodes with systemd and kernels of their own, in software emulation
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Formatting, clippy and rustdoc, all warnings denied
    Lint,
    /// Structural checks
    #[command(subcommand)]
    Check(check::Check),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Setup => setup::run(),
        Command::Build(args) => build::run(&args),
        Command::Demo(args) => demo::run(&args),
        // Its last line is the result, also of a failure.
        Command::Test(args) => return test::run(&args),
        // Its exit code is the one of the command that ran in the node.
        Command::Lab(lab) => return lab::run(&lab),
        Command::Bench(bench) => bench::run(&bench),
        Command::Lint => lint::run(),
        Command::Check(check) => check::run(check),
    }
    .map(|()| ExitCode::SUCCESS)
}
