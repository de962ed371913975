//! `doctor`: whether the product can work on this node, and what to do where it cannot.
//!
//! Looks and asks only; makes, kills and changes nothing. The probes are loaded for real and dropped again.

mod cgroups;
mod check;
mod files;
mod kernel;
mod privilege;
mod runtime;

use std::path::Path;

use clap::Args as ClapArgs;

use self::check::{Check, Doctor};
use super::Status;
use super::options::{AuditLog, Node};
use super::output::{Format, print, print_json};

/// Options of `doctor`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    audit: AuditLog,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    let sources = args.node.sources();
    let mut checks = [kernel::all(), cgroups::all(&sources.cgroup_roots), privilege::all()].concat();
    checks.extend(runtime::all(&sources).await);
    checks.extend(files::all(&args.audit.audit_log, &args.node.state_dir));
    checks.push(systemd());
    let doctor = Doctor::new(&checks);
    match args.output {
        Format::Json => print_json(&doctor)?,
        Format::Table => print(&doctor.text())?,
    }
    Ok(doctor.status())
}

/// As `sd_booted(3)` finds out.
fn systemd() -> Check {
    let runs = Path::new("/run/systemd/system").is_dir();
    let seen = if runs { "systemd manages this node" } else { "systemd does not manage this node" };
    Check::ok("systemd", seen)
}
