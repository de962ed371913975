//! `events`: what the kernel reports, as it happens, with the container it concerns.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;
use tokio::time::sleep;

use super::Status;
use super::options::{Judgement, Node, duration};
use super::output::{Format, print};
use crate::daemon::clock;
use crate::daemon::service::Wanted;
use crate::daemon::stream::{Stream, Told, wall_of};
use crate::event::{Act, Actor, Occurrence};
use crate::fact::{EndedCommand, ProcessEnd};
use crate::ident::{CgroupRef, ProcessKey};
use crate::lineage::{Notice, Reuse};

/// New containers are looked for this long after a sign of one.
const LOOK_AFTER: Duration = Duration::from_millis(200);
/// And this often in any case.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Options of `events`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Go on until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Without --follow: end after this time
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = duration, conflicts_with = "follow")]
    lasting: Duration,
    /// Only events of this kind (repeatable)
    #[arg(long, value_enum)]
    kind: Vec<Kind>,
    /// Which probes to use
    #[arg(long, value_enum, default_value_t, env = "CGROUP_REAPER_PROBES")]
    probes: Wanted,
    #[command(flatten)]
    node: Node,
    /// Output format; json is one object a line
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// A cgroup was made
    CgroupMade,
    /// A cgroup was removed
    CgroupRemoved,
    /// The first task entered a cgroup, or the last one left
    CgroupPopulated,
    /// A cgroup froze or thawed
    CgroupFrozen,
    /// A process made another
    ProcessForked,
    /// A process became another program
    ProcessExeced,
    /// A process ended
    ProcessExited,
    /// This program, which shows the events, killed a process
    ProcessKilled,
    /// A command of runc, crun or youki ended
    CommandEnded,
    /// A process number came back
    PidReused,
}

/// One line of output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    api_version: &'static str,
    time: jiff::Timestamp,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<CgroupRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<ProcessKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shim: Option<ProcessKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<ProcessEnd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<EndedCommand>,
    detail: String,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    let engine = args.node.engine(Judgement::default().policy())?;
    let mut stream = Box::pin(Stream::start(engine, args.probes)).await?;
    let begun = clock::boot();
    let end = (!args.follow).then(|| begun.after(args.lasting));
    let mut look_at = begun.after(LOOK_EVERY);
    let mut lost = 0;
    loop {
        let now = clock::boot();
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => break,
            () = sleep(end.unwrap_or_default().since(now)), if end.is_some() => break,
            () = sleep(look_at.since(now)) => {
                Box::pin(stream.look()).await;
                look_at = clock::boot().after(LOOK_EVERY);
            }
            told = stream.next() => {
                let told = told?;
                if told.iter().any(may_be_new) {
                    look_at = look_at.min(clock::boot().after(LOOK_AFTER));
                }
                show(&told, &args)?;
                lost = say_lost(&stream, lost);
            }
        }
    }
    Ok(Status::Success)
}

/// A gap in the stream must be visible in it.
fn say_lost(stream: &Stream, before: u64) -> u64 {
    let Some(losses) = stream.losses() else { return before };
    let total = losses.total();
    if total > before {
        tracing::warn!(lost = total.saturating_sub(before), "events were lost: this reader was too slow");
    }
    total
}

/// A runtime's command begins or ends: a container may have come.
fn may_be_new(told: &Told) -> bool {
    matches!(told.notice, Some(Notice::CommandEnded(_)))
        || matches!(told.event.what, Occurrence::CgroupMade { .. })
}

fn show(told: &[Told], args: &Args) -> anyhow::Result<()> {
    let wanted = |line: &Line| args.kind.is_empty() || args.kind.contains(&line.kind);
    let mut text = String::new();
    for line in told.iter().flat_map(lines).filter(wanted) {
        text.push_str(&match args.output {
            Format::Json => serde_json::to_string(&line)?,
            Format::Table => row(&line),
        });
        text.push('\n');
    }
    if text.is_empty() { Ok(()) } else { print(&text) }
}

/// Fixed columns, as a stream has no end to measure them by.
fn row(line: &Line) -> String {
    let kind = line.kind.to_possible_value().map_or_else(String::new, |kind| kind.get_name().to_owned());
    let container = line.container.as_deref().unwrap_or("-");
    format!("{:.3}  {kind:<16}  {container:<40}  {}", line.time, line.detail)
}

/// The event itself, and what it meant beyond.
fn lines(told: &Told) -> Vec<Line> {
    let mut lines = vec![line(told)];
    match &told.notice {
        Some(Notice::CommandEnded(ended)) => lines.push(of_command(told, ended)),
        Some(Notice::Reused(reuse)) => lines.push(of_reuse(told, reuse)),
        None => {}
    }
    lines
}

fn base(told: &Told, kind: Kind) -> Line {
    Line {
        api_version: "reaper/v1",
        time: wall_of(&told.event),
        kind,
        container: told.container.as_ref().map(ToString::to_string),
        cgroup: None,
        path: told.path.as_ref().map(ToString::to_string),
        process: None,
        shim: told.shim,
        end: None,
        command: None,
        detail: String::new(),
    }
}

fn line(told: &Told) -> Line {
    let about = |kind, cgroup: CgroupRef, what: String| {
        let place = told.path.as_ref().map_or_else(|| format!("id {}", cgroup.id.0), ToString::to_string);
        let detail = format!("{place} (hierarchy {}){what}", cgroup.hierarchy.0);
        Line { cgroup: Some(cgroup), detail, ..base(told, kind) }
    };
    let of = |kind, process: ProcessKey, detail: String| Line {
        process: Some(process),
        detail,
        ..base(told, kind)
    };
    match told.event.what {
        Occurrence::CgroupMade { cgroup, maker, .. } => about(Kind::CgroupMade, cgroup, by(maker)),
        Occurrence::CgroupRemoved { cgroup, remover, .. } => about(Kind::CgroupRemoved, cgroup, by(remover)),
        Occurrence::CgroupPopulated { cgroup, populated } => {
            about(Kind::CgroupPopulated, cgroup, if populated { " populated" } else { " empty" }.to_owned())
        }
        Occurrence::CgroupFrozen { cgroup, frozen } => {
            about(Kind::CgroupFrozen, cgroup, if frozen { " frozen" } else { " thawed" }.to_owned())
        }
        Occurrence::Forked { creator, child, comm, .. } => {
            of(Kind::ProcessForked, child, format!("{} by {} {comm}", child.tgid, creator.tgid))
        }
        Occurrence::Execed { process, comm, .. } => {
            of(Kind::ProcessExeced, process, format!("{} is {comm}", process.tgid))
        }
        Occurrence::Killed { process, comm, .. } => {
            of(Kind::ProcessKilled, process, format!("{} {comm} by this program", process.tgid))
        }
        Occurrence::Exited { process, status, comm, .. } => {
            let end = status.map(ProcessEnd::from_status);
            let how = end.map_or_else(|| "ended".to_owned(), |end| end.to_string());
            let line = of(Kind::ProcessExited, process, format!("{} {comm}: {how}", process.tgid));
            Line { end, ..line }
        }
        Occurrence::Unidentified { act, tgid, creator, comm } => {
            let (kind, detail) = match (act, creator) {
                (Act::Forked, Some(creator)) => (Kind::ProcessForked, format!("{tgid} by {creator} {comm}")),
                (Act::Forked, None) => (Kind::ProcessForked, format!("{tgid} {comm}")),
                (Act::Execed, _) => (Kind::ProcessExeced, format!("{tgid} is {comm}")),
                (Act::Exited, _) => (Kind::ProcessExited, format!("{tgid} {comm}: ended")),
            };
            Line { detail, ..base(told, kind) }
        }
    }
}

fn by(actor: Actor) -> String {
    actor.tgid.map_or_else(String::new, |tgid| format!(" by {tgid} {}", actor.comm))
}

fn of_command(told: &Told, ended: &EndedCommand) -> Line {
    let verb = ended.invocation.as_ref().map_or("?", |invocation| invocation.verb.as_str());
    let lasted = ended.ended.since(ended.began);
    let shim = ended.shim.map_or_else(String::new, |shim| format!(", shim {}", shim.tgid));
    Line {
        process: Some(ended.process),
        shim: ended.shim,
        end: Some(ended.end),
        command: Some(ended.clone()),
        detail: format!("{verb} {}: {} after {lasted:.1?}{shim}", ended.process.tgid, ended.end),
        ..base(told, Kind::CommandEnded)
    }
}

fn of_reuse(told: &Told, reuse: &Reuse) -> Line {
    let ended = reuse.ended.map_or_else(|| "unseen".to_owned(), |ended| ended.to_string());
    let detail = format!(
        "{}: the process born at {} ended at {ended}, another was born at {}",
        reuse.after.tgid, reuse.before.born, reuse.after.born
    );
    Line { detail, ..base(told, Kind::PidReused) }
}
