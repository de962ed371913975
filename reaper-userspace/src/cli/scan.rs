//! `scan`: list leaks.

use std::time::Duration;

use clap::Args as ClapArgs;

use super::Status;
use super::item::{HoldLine, Item, LeakList, Summary, status};
use super::options::{Judgement, Node, Record};
use super::output::{Format, print, print_json, table};
use crate::daemon::clock;
use crate::daemon::engine::{Engine, Round};
use crate::leak::LeakState;
use crate::verdict::Freshness;

/// Options of `scan`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Live containers too
    #[arg(short, long)]
    all: bool,
    /// Exit with 3 if there are confirmed leaks
    #[arg(long)]
    exit_code: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    judgement: Judgement,
    #[command(flatten)]
    record: Record,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    let policy = args.judgement.policy();
    let watch = args.judgement.watch(&policy);
    let mut engine = args.node.engine(policy)?.recording(args.record.open()?);
    let round = two_looks(&mut engine, watch).await;
    let items = Item::all(&round);
    let holds = HoldLine::all(&args.node.state_dir);
    match args.output {
        Format::Json => print_json(&LeakList::new(&round, &items, &holds))?,
        Format::Table => {
            print(&text(&round, &items, args.all))?;
            holds.iter().try_for_each(|hold| print(&format!("{hold}\n")))?;
        }
    }
    let confirmed = items.iter().any(|item| item.state == LeakState::Confirmed);
    Ok(if args.exit_code && confirmed { Status::LeaksFound } else { Status::Success })
}

/// Two looks apart, as every verdict needs; the second one counts.
pub(super) async fn two_looks(engine: &mut Engine, watch: Duration) -> Round {
    let first = engine.round(&Freshness::Fresh).await;
    if first.ids().is_empty() {
        return first;
    }
    if watch > Duration::from_secs(2) {
        tracing::info!(?watch, "looking again after the grace");
    }
    tokio::time::sleep(watch).await;
    engine.round(&Freshness::Fresh).await
}

fn text(round: &Round, items: &[Item], all: bool) -> String {
    let mut text = String::new();
    if !items.is_empty() {
        let header = ["ID", "KIND", "STATE", "AGE", "PROCS", "RUNTIME-NS", "CONTAINER", "CAUSE", "ACTION"];
        text.push_str(&table(&header, items.iter().map(row).collect()));
    }
    if all {
        let rows = round.look.live.iter().map(|live| {
            let key = &live.container;
            vec![
                key.namespace.to_string(),
                key.id.to_string(),
                status(live.status).into(),
                live.address.clone(),
            ]
        });
        text.push_str(&table(&["RUNTIME-NS", "CONTAINER", "TASK", "CONTAINERD"], rows.collect()));
    }
    let Summary { confirmed, suspected, protected, shims, runtime_tasks, .. } = Summary::of(round, items);
    text.push_str(&format!(
        "{} leaks: {confirmed} confirmed, {suspected} suspected, {protected} protected. \
         shims {shims} / tasks known to containerd {runtime_tasks}.\n",
        items.len()
    ));
    for problem in &round.look.problems {
        text.push_str(&format!("note: {problem}\n"));
    }
    text.push_str(blind(round).unwrap_or_default());
    text
}

/// "No leaks" from somebody who cannot see is no good news.
fn blind(round: &Round) -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("note: not root, so most cannot be seen and nothing can be confirmed\n");
    }
    let silent = round.look.containerds.values().all(|health| health.unavailable().is_some());
    silent.then_some(
        "note: no containerd of --containerd-address answers, so nothing can be confirmed; \
         see `cgroup-reaper doctor`\n",
    )
}

fn row(item: &Item) -> Vec<String> {
    let age = clock::wall().duration_since(item.since).unsigned_abs();
    let action = item.held_by().map_or_else(
        || item.plan.join(", "),
        |line| format!("none ({}: {})", line.name, line.reasons.first().map_or("", String::as_str)),
    );
    vec![
        item.id.to_string(),
        item.kind.to_string(),
        item.state.to_string(),
        short(age),
        format!("{}{}", item.processes.len(), if item.frozen { " (F)" } else { "" }),
        item.target.runtime_namespace.clone(),
        item.target.container_id.chars().take(24).collect(),
        item.cause.to_string(),
        action,
    ]
}

/// An age as kubectl shows it: the two largest units.
fn short(age: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = age.as_secs();
    match seconds {
        0..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m{}s", seconds / MINUTE, seconds % MINUTE),
        HOUR..DAY => format!("{}h{}m", seconds / HOUR, seconds % HOUR / MINUTE),
        DAY.. => format!("{}d{}h", seconds / DAY, seconds % DAY / HOUR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_their_two_largest_units() {
        let shown = [0, 59, 60, 3_599, 3_660, 90_000].map(|seconds| short(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0s", "59s", "1m0s", "59m59s", "1h1m", "1d1h"]);
    }
}
