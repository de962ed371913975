//! `cargo xtask lab`: whole Debian nodes, with systemd as PID 1 and their own kernel, in software emulation.
//!
//! A node is data ([`node`]), its disk is built once and kept ([`disk`]), and every run boots a throwaway copy of it
//! ([`machine`]). One machine runs at a time. A node that does not build or boot is an error, never a skip.

mod disk;
mod job;
mod machine;
mod node;
mod qemu;
mod report;
mod store;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args as ClapArgs, Subcommand};

use crate::setup::{self, say};
use job::Job;
use machine::Limits;
use node::Node;
use store::Store;

/// What building and booting takes on the host; everything else lives below `TARGET/lab`.
const PROGRAMS: [(&str, &str); 4] =
    [("debootstrap", "debootstrap"), ("e2fsprogs", "mke2fs"), ("tar", "tar"), ("util-linux", "setpriv")];

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// The nodes, and which of their disks are built
    List,
    /// Boot a node, run a command in it as root, and end with its exit code
    Run(Run),
    /// Play the scenarios in these nodes, or in all, and show a table
    Test(trial::Test),
    /// Boot a node and work in it; ends with the shell
    Shell(Shell),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// A name that `lab list` shows
    node: String,
    /// A file that the command finds in its working directory; repeatable
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Give up on the command after so many seconds
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Shell {
    /// A name that `lab list` shows
    node: String,
    /// A file to be found in /lab; repeatable
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
}

/// Plays the share of the scenarios that every run of all tests has time for.
pub(crate) fn share() -> anyhow::Result<()> {
    ensure!(trial::Test::share().run()? == ExitCode::SUCCESS, "not all scenarios passed");
    Ok(())
}

pub(crate) fn run(lab: &Lab) -> anyhow::Result<ExitCode> {
    match lab {
        Lab::List => list(),
        Lab::Run(args) => args.run(),
        Lab::Test(args) => args.run(),
        Lab::Shell(args) => args.run(),
    }
}

#[expect(clippy::print_stdout, reason = "a command speaks to the terminal")]
fn list() -> anyhow::Result<ExitCode> {
    let store = Store::open()?;
    println!("{:<20} {:<9} {:<8} WHAT", "NODE", "CGROUPS", "DISK");
    for node in &node::ALL {
        let built = if disk::is_built(&store, node.disk()) { "built" } else { "-" };
        println!("{:<20} {:<9} {built:<8} {}", node.name, node.cgroups.as_str(), node.what);
    }
    Ok(ExitCode::SUCCESS)
}

// === impl Run ===

impl Run {
    #[expect(clippy::print_stdout, reason = "passes the output of the command on")]
    fn run(&self) -> anyhow::Result<ExitCode> {
        let (store, node) = ready(&self.node)?;
        let job = Job { files: self.files.clone(), command: self.command.clone() };
        let limits = Limits { work: Duration::from_secs(self.seconds), ..Limits::default() };
        let code = machine::run(&store, node, &job, limits, |line| println!("{line}"))?;
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
    }
}

// === impl Shell ===

impl Shell {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let (store, node) = ready(&self.node)?;
        say("leave the shell to end the machine; Ctrl-A X ends it at once");
        machine::shell(&store, node, &Job { files: self.files.clone(), command: vec![] })
    }
}

/// Everything that must be there before the node can boot.
fn ready(name: &str) -> anyhow::Result<(Store, &'static Node)> {
    let node = node::find(name)?;
    setup::programs(&PROGRAMS)?;
    let store = Store::open()?;
    qemu::ensure(&store)?;
    disk::ensure(&store, node.disk())?;
    Ok((store, node))
}
