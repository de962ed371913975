//! `replay`: judge a recorded trace anew.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args as ClapArgs;
use serde::Serialize;

use super::Status;
use super::output::{Format, print, print_json, table};
use crate::daemon::engine::Judged;
use crate::daemon::trace::{Reader, Replay, Replayed, Scope, TracedLook};
use crate::ident::{CgroupPath, ContainerKey, LeakId};
use crate::leak::{Cause, LeakKind};
use crate::plan::{ReapPlan, Step};
use crate::time::BootTime;
use crate::verdict::{Evidence, Freshness, Verdict, Veto};

/// Options of `replay`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A trace of `scan --record` or `run --record`
    file: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `replay -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    looks: &'a [Shown],
}

/// One look and its verdicts.
#[derive(Debug, Serialize)]
struct Shown {
    at: BootTime,
    scope: Scope,
    freshness: Freshness,
    containers: Vec<Line>,
    gone: Vec<ContainerKey>,
}

/// One container in one look.
#[derive(Debug, Serialize)]
struct Line {
    id: LeakId,
    container: ContainerKey,
    cgroup: CgroupPath,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<LeakKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
    looks: u32,
    guards: Vec<Veto>,
    evidence: Vec<Evidence>,
    plan: Vec<&'static str>,
}

#[expect(clippy::unused_async, reason = "every subcommand is called alike")]
pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    let looks = replay(&args.file)?;
    match args.output {
        Format::Json => {
            print_json(&List { api_version: "reaper/v1", kind: "Replay", looks: &looks })?;
        }
        Format::Table => print(&text(&looks))?,
    }
    Ok(Status::Success)
}

fn replay(path: &Path) -> anyhow::Result<Vec<Shown>> {
    let file = File::open(path).with_context(|| format!("cannot open trace {}", path.display()))?;
    let mut replay = Replay::default();
    Reader::new(BufReader::new(file))
        .map(|look| look.map(|look| Shown::of(&mut replay, look)))
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot replay {}", path.display()))
}

// === impl Shown ===

impl Shown {
    fn of(replay: &mut Replay, look: TracedLook<'_>) -> Self {
        let (at, scope, freshness) = (look.at, look.scope, look.freshness.clone().into_owned());
        let Replayed { judged, gone } = replay.look(look);
        let containers = judged.into_iter().map(Line::of).collect();
        Self { at, scope, freshness, containers, gone }
    }
}

// === impl Line ===

impl Line {
    fn of(judged: Judged) -> Self {
        let Judged { id, sighting, history, verdict } = judged;
        let state = verdict.state().map_or("live", |state| state.as_str());
        let mut line = Self {
            id,
            container: sighting.container,
            cgroup: sighting.cgroup,
            state,
            owner: None,
            kind: None,
            cause: None,
            looks: history.looks,
            guards: vec![],
            evidence: vec![],
            plan: vec![],
        };
        match verdict {
            Verdict::Live(owner) => line.owner = Some(owner),
            Verdict::Held { kind, cause, evidence, vetoes, .. } => {
                (line.kind, line.cause) = (Some(kind), Some(cause));
                (line.evidence, line.guards) = (evidence, vetoes);
            }
            Verdict::Leaked(proof) => {
                (line.kind, line.cause) = (Some(proof.kind()), Some(proof.cause()));
                line.evidence = proof.evidence().to_vec();
                line.plan = ReapPlan::new(*proof).steps().iter().map(Step::op).collect();
            }
        }
        line
    }

    fn row(&self) -> [String; 5] {
        let kind = self.kind.map_or("-", LeakKind::as_str);
        let mut guards: Vec<&str> = self.guards.iter().map(|veto| veto.guard.as_str()).collect();
        guards.dedup();
        let why = self.owner.clone().unwrap_or_else(|| guards.join(", "));
        [self.container.to_string(), kind.to_owned(), self.state.to_owned(), why, counted(&self.plan)]
    }
}

/// `kill, 12 rmdir`.
fn counted(plan: &[&str]) -> String {
    let runs = plan.chunk_by(|one, next| one == next).filter_map(|run| Some((run.first()?, run.len())));
    let words = runs.map(|(op, count)| if count == 1 { (*op).to_owned() } else { format!("{count} {op}") });
    words.collect::<Vec<_>>().join(", ")
}

fn text(looks: &[Shown]) -> String {
    let mut rows = vec![];
    for (number, look) in (1..).zip(looks) {
        let scope = match look.scope {
            Scope::Node => "",
            Scope::Recheck => " recheck",
        };
        let row = |cells: [String; 5]| {
            let cells = cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { cell });
            [format!("{number}{scope}"), look.at.to_string()].into_iter().chain(cells).collect()
        };
        let gone = |key: &ContainerKey| {
            [key.to_string(), String::new(), "gone".into(), String::new(), String::new()]
        };
        let before = rows.len();
        rows.extend(look.containers.iter().map(Line::row).map(row));
        rows.extend(look.gone.iter().map(gone).map(row));
        if rows.len() == before {
            rows.push(row([const { String::new() }; 5]));
        }
    }
    table(&["LOOK", "TIME", "CONTAINER", "KIND", "STATE", "HELD BY", "PLAN"], rows)
}

#[cfg(test)]
mod tests;
