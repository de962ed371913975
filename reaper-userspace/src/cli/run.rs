//! `run`: the daemon, or one complete reconcile.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};

use super::Status;
use super::limits::Limits;
use super::options::{AuditLog, Judgement, Node, Record, duration, kind, node_name};
use crate::daemon::service::{self, Settings, Wanted};
use crate::kernel::chain;
use crate::leak::LeakKind;
use crate::policy::{Mode, Policy};

/// Options of `run`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// What to do about confirmed leaks
    #[arg(long, value_enum, default_value_t, env = "CGROUP_REAPER_MODE")]
    mode: ModeWord,
    /// Look until nothing changes by waiting, reap what is confirmed, and end: 0 nothing leaked, 1 a
    /// containerd gave no answer, 3 leaks left, 5 a reap failed
    #[arg(long)]
    once: bool,
    /// Time between two looks when nothing happens
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = interval, env = "CGROUP_REAPER_INTERVAL")]
    interval: Duration,
    /// Where to serve /metrics, /livez and /readyz
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9464",
        env = "CGROUP_REAPER_METRICS_LISTEN"
    )]
    metrics_listen: SocketAddr,
    #[command(flatten)]
    audit: AuditLog,
    /// Which probes to use
    #[arg(long, value_enum, default_value_t, env = "CGROUP_REAPER_PROBES")]
    probes: Wanted,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    judgement: Judgement,
    #[command(flatten)]
    limits: Limits,
    /// Reap no more than this before looking at the node again
    #[arg(
        long, value_name = "N", default_value_t = 20, help_heading = "Brakes",
        env = "CGROUP_REAPER_MAX_PER_SWEEP", value_parser = clap::value_parser!(u32).range(1..)
    )]
    max_per_sweep: u32,
    /// With --mode enforce: only observe this kind (repeatable)
    #[arg(long, value_name = "KIND", value_parser = kind, value_delimiter = ',', env = "CGROUP_REAPER_OBSERVE_KIND")]
    observe_kind: Vec<LeakKind>,
    #[command(flatten)]
    record: Record,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ModeWord {
    /// Only say what would be done
    #[default]
    Observe,
    /// Reap
    Enforce,
}

fn interval(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    let interval = duration(text)?;
    if interval < SHORTEST {
        return Err(format!("at least {SHORTEST:?}, each look asks containerd about every container"));
    }
    Ok(interval)
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    let mode = match args.mode {
        ModeWord::Observe => Mode::Observe,
        ModeWord::Enforce => Mode::Enforce,
    };
    let recorder = args.record.open().unwrap_or_else(|error| {
        tracing::warn!(error = %chain(&error), "not recording");
        None
    });
    let policy = Policy {
        mode,
        observe_only: args.observe_kind.into_iter().collect(),
        budget: args.limits.budget(args.max_per_sweep),
        ..args.judgement.policy()
    };
    let engine = args.node.engine(policy)?.recording(recorder);
    let settings = Settings {
        interval: args.interval,
        listen: Some(args.metrics_listen),
        audit_log: args.audit.audit_log,
        state_dir: args.node.state_dir,
        probes: args.probes,
        node: node_name(),
    };
    if !args.once {
        service::run(engine, settings).await?;
        return Ok(Status::Success);
    }
    let tally = service::once(engine, settings).await?;
    tracing::info!(reaped = tally.reaped, failed = tally.failed, left = tally.left, "done");
    if tally.failed > 0 {
        return Ok(Status::ReapFailed);
    }
    if tally.left > 0 {
        return Ok(Status::LeaksFound);
    }
    match tally.unanswered {
        Some(silent) => anyhow::bail!("no answer, so nobody knows whether anything leaked: {silent}"),
        None => Ok(Status::Success),
    }
}
