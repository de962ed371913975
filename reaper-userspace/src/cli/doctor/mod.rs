//! `doctor`: whether the product can work on this node, and what to do where it cannot.
//!
//! Looks and asks only; makes, kills and changes nothing. The probes are loaded for real and dropped again.

mod cgroups;
mod check;
mod files;
mod kernel;
mod privilege;
mod runtime;

use clap::Args as ClapArgs;

use self::check::{Check, Doctor};
use super::Status;
use super::options::{AuditLog, Node};
use super::output::{Format, print, print_json};
use crate::ident::Lookup;
use crate::systemd;

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
    checks.push(scopes().await);
    let doctor = Doctor::new(&checks);
    match args.output {
        Format::Json => print_json(&doctor)?,
        Format::Table => print(&doctor.text())?,
    }
    Ok(doctor.status())
}

async fn scopes() -> Check {
    const NAME: &str = "systemd";
    match systemd::failed_scopes().await {
        Lookup::Found(failed) => {
            let count = failed.len();
            Check::ok(NAME, format!("systemd manages this node; failed scopes of containers: {count}"))
        }
        Lookup::NotFound => Check::ok(NAME, "systemd does not manage this node"),
        Lookup::Unavailable(reason) => Check::warning(
            NAME,
            reason,
            "failed scopes are not found until it answers: is dbus running, and in a container is \
             /run/dbus/system_bus_socket mounted?",
        ),
    }
}
