//! `explain`: evidence, guards and plan of one container.

use clap::Args as ClapArgs;
use serde_json::json;

use super::Status;
use super::find::{self, Found};
use super::item::{Item, Ruling, Shown, status};
use super::options::{Judgement, Node};
use super::output::{Format, print, print_json, table};
use super::scan::two_looks;
use crate::daemon::engine::{Judged, Round};
use crate::fact::Subject as _;
use crate::plan::{ReapPlan, Step};
use crate::survey::LiveContainer;
use crate::verdict::{Judge, Verdict};

/// Options of `explain`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Short name, container id or its beginning, namespace/id, cgroup path, or a process number
    id: String,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    judgement: Judgement,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    let policy = args.judgement.policy();
    let watch = args.judgement.watch(&policy);
    let mut engine = args.node.engine(policy)?;
    let round = two_looks(&mut engine, watch).await;
    let misplaced = round.misplaced.iter().any(|judged| find::names(judged.sighting.container(), &args.id));
    if let Some(live) = listed(&round, &args.id)
        && !misplaced
    {
        show_live(live, args.output)?;
        return Ok(Status::Success);
    }
    match find::judged(&round, &args.id)? {
        Found::Container(judged) => show(judged, args.output)?,
        Found::Bundle(judged) => show(judged, args.output)?,
        Found::Unit(judged) => show(judged, args.output)?,
        Found::Misplaced(judged) => show(judged, args.output)?,
    }
    Ok(Status::Success)
}

fn show<S: Shown>(judged: &Judged<S>, format: Format) -> anyhow::Result<()> {
    match (format, Item::of(judged)) {
        (Format::Json, Some(item)) => {
            print_json(&json!({ "apiVersion": "reaper/v1", "kind": "Leak", "item": item }))
        }
        (Format::Json, None) => print_json(&json!({
            "apiVersion": "reaper/v1", "kind": "Live", "target": judged.sighting.target(),
            "reason": owner(judged),
        })),
        (Format::Table, item) => print(&text(judged, item.as_ref())),
    }
}

fn listed<'a>(round: &'a Round, word: &str) -> Option<&'a LiveContainer> {
    let mut found = round.look.live.iter().filter(|live| find::names(&live.container, word));
    found.next().filter(|_| found.next().is_none())
}

fn show_live(live: &LiveContainer, format: Format) -> anyhow::Result<()> {
    let reason = format!("task {} at {}", status(live.status), live.address);
    match format {
        Format::Json => print_json(&json!({
            "apiVersion": "reaper/v1", "kind": "Live", "container": live.container, "reason": reason,
        })),
        Format::Table => print(&format!("container {}\nin use: {reason}\n", live.container)),
    }
}

fn owner<S>(judged: &Judged<S>) -> &str {
    match &judged.verdict {
        Verdict::Live(owner) => owner,
        Verdict::Held { .. } | Verdict::Leaked(_) => "",
    }
}

fn text<S: Shown>(judged: &Judged<S>, item: Option<&Item>) -> String {
    let head = format!("{}\n", judged.sighting.head());
    let Some(item) = item else { return format!("{head}in use: {}\n", owner(judged)) };
    let decision = match item.held_by() {
        Some(line) => format!("would reap: no ({})", line.name),
        None => "would reap: yes".to_owned(),
    };
    let mut text = format!(
        "{head}{} {}   {}   cause {}{}   since {:.0}\n{decision}\n",
        item.id,
        item.state,
        item.kind,
        item.cause,
        item.target.cgroup_id.map_or_else(String::new, |id| format!("   id {id}")),
        item.since
    );
    let evidence = item.evidence.iter().map(|one| vec![format!("+ {}", one.what), one.source.to_string()]);
    text.push_str(&table(&["EVIDENCE", "SOURCE"], evidence.collect()));
    text.push_str(&guards::<S>(item));
    text.push_str(&plan(judged));
    text
}

fn guards<S: Judge>(item: &Item) -> String {
    let passed: Vec<&str> = item
        .guards
        .iter()
        .filter(|line| line.verdict == Ruling::Pass)
        .map(|line| line.name.as_str())
        .collect();
    let mut text = format!("GUARDS   pass: {}\n", passed.join(" · "));
    for line in item.guards.iter().filter(|line| line.verdict == Ruling::Hold) {
        let rules = S::rules();
        let means = rules.iter().find(|(guard, _)| *guard == line.name);
        let means = means.map_or("age counts from what was seen", |(_, means)| means);
        for reason in &line.reasons {
            text.push_str(&format!("         HOLD {}: {reason}\n", line.name));
        }
        text.push_str(&format!("              ({means})\n"));
    }
    text
}

fn plan<S: Shown>(judged: &Judged<S>) -> String {
    let Some(proof) = judged.proof() else { return "PLAN     none\n".to_owned() };
    let plan = ReapPlan::new(proof.clone());
    let mut text = "PLAN\n".to_owned();
    for (number, step) in (1..).zip(plan.steps()) {
        let object = match step {
            Step::Kill { .. } => format!("{} process(es), wait until unpopulated", proof.members().count()),
            // v2 has no name in `/proc/PID/cgroup`.
            Step::Remove { target } => target.place(),
            Step::Unmount { mount } => mount.target.to_string_lossy().escape_debug().to_string(),
            Step::ResetUnit { unit, .. } => unit.to_string(),
        };
        text.push_str(&format!("  {number:>2} {:<6} {object}\n", step.op()));
    }
    text
}
