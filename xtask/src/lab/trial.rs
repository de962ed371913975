//! `lab test`: plays the scenarios of `tests/src/whole` in nodes and shows the results as a table.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args as ClapArgs;
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::machine::{self, Limits};
use super::node::{self, Node};
use super::store::Store;
use super::{ready, report};
use crate::build;
use crate::setup::say;

/// Two containerd starts of 100 s are in it on the oldest node.
const WORK: Duration = Duration::from_mins(25);

#[derive(Debug, ClapArgs)]
pub(crate) struct Test {
    /// Names that `lab list` shows; all if none is given
    nodes: Vec<String>,
    /// Only this scenario; repeatable
    #[arg(long = "only", value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Play this static cgroup-reaper instead of building the release
    #[arg(long, value_name = "PATH")]
    product: Option<PathBuf>,
    /// Replace the table in docs/kernels.md: these nodes, and the others as they were played last
    #[arg(long, conflicts_with = "scenarios")]
    write: bool,
}

/// How one scenario ended in a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) ok: bool,
    pub(super) said: String,
    pub(super) seconds: u64,
}

/// All of one node.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Record {
    pub(super) node: String,
    pub(super) cgroups: String,
    /// Versions of what runs there, by name.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) outcomes: Vec<Outcome>,
    /// Why it is not complete.
    pub(super) broken: Option<String>,
}

// === impl Test ===

impl Test {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let nodes = if self.nodes.is_empty() { node::ALL.iter().collect() } else { self.named()? };
        let (store, job) = (Store::open()?, self.job()?);
        let mut records = vec![];
        for node in nodes {
            let record = trial(node, &job);
            // A part of the scenarios says nothing about the node.
            if self.scenarios.is_empty() {
                record.keep(&store)?;
            }
            records.push(record);
        }
        report::show(&records);
        if self.write {
            report::write(
                &node::ALL.iter().filter_map(|node| Record::kept(&store, node)).collect::<Vec<_>>(),
            )?;
        }
        let whole = records.iter().all(Record::is_whole);
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// What `cargo xtask test` plays: what differs most between nodes, in the oldest release that most run and in one
    /// with a newer kernel.
    pub(super) fn share() -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            nodes: words(&["bookworm", "trixie"]),
            scenarios: words(&["doctor", "half_created", "failed_scope", "misplaced"]),
            product: None,
            write: false,
        }
    }

    fn named(&self) -> anyhow::Result<Vec<&'static Node>> {
        self.nodes.iter().map(|name| node::find(name)).collect()
    }

    /// The product and the program that plays the scenarios, both static.
    fn job(&self) -> anyhow::Result<Job> {
        let product = self.product.clone().map_or_else(build::product, Ok)?;
        let player = build::static_test("lab_node")?;
        let command = [vec!["./lab_node".to_owned()], self.scenarios.clone()].concat();
        Ok(Job { files: [vec![product, player], shipped()].concat(), command })
    }
}

/// Files that are shipped beside the binary and tried as they are.
fn shipped() -> Vec<PathBuf> {
    let unit = crate::cargo::workspace().join("deploy/cgroup-reaper.service");
    unit.exists().then_some(unit).into_iter().collect()
}

/// A node that does not build, boot or finish is a broken one, and the others are still played.
fn trial(node: &'static Node, job: &Job) -> Record {
    let mut record = Record::of(node);
    let played = play(node, job, &mut record);
    record.broken = played.err().map(|error| format!("{error:#}"));
    if let Some(why) = &record.broken {
        say(&format!("{}: {why}", node.name));
    }
    record
}

fn play(node: &'static Node, job: &Job, record: &mut Record) -> anyhow::Result<()> {
    let (store, node) = ready(node.name)?;
    let limits = Limits { work: WORK, ..Limits::default() };
    let mut unread = None;
    let code = machine::run(&store, node, job, limits, |line| {
        unread = record.take(line).err().or_else(|| unread.take());
    })?;
    if let Some(error) = unread {
        return Err(error);
    }
    ensure!(!record.outcomes.is_empty(), "no scenario was played; the player ended with {code}");
    let failed = record.outcomes.iter().any(|outcome| !outcome.ok);
    ensure!(failed == (code != 0), "the player ended with {code}");
    Ok(())
}

// === impl Record ===

impl Record {
    fn of(node: &Node) -> Self {
        let (node, cgroups) = (node.name.to_owned(), node.cgroups.as_str().to_owned());
        Self { node, cgroups, versions: BTreeMap::new(), outcomes: vec![], broken: None }
    }

    #[expect(clippy::disallowed_methods, reason = "a file of the lab's own")]
    fn keep(&self, store: &Store) -> anyhow::Result<()> {
        let path = store.make("results")?.join(format!("{}.json", self.node));
        std::fs::write(&path, serde_json::to_string(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// How the node was played last; `None` if it never was.
    fn kept(store: &Store, node: &Node) -> Option<Self> {
        let text = std::fs::read_to_string(store.dir().join(format!("results/{}.json", node.name))).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.broken.is_none() && self.outcomes.iter().all(|outcome| outcome.ok)
    }

    pub(super) fn outcome(&self, scenario: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.name == scenario)
    }

    /// Reads a line of the player's; others are passed on.
    fn take(&mut self, line: &str) -> anyhow::Result<()> {
        if let Some(versions) = line.strip_prefix("%node ") {
            self.versions = serde_json::from_str(versions).with_context(|| line.to_owned())?;
        } else if let Some(outcome) = line.strip_prefix("%result ") {
            let outcome: Outcome = serde_json::from_str(outcome).with_context(|| line.to_owned())?;
            let mark = if outcome.ok { "ok" } else { "FAILED" };
            say(&format!(
                "{:<18} {:<14} {mark:<6} {:>4} s  {}",
                self.node, outcome.name, outcome.seconds, outcome.said
            ));
            self.outcomes.push(outcome);
        } else if !line.is_empty() {
            say(&format!("{}: {line}", self.node));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::of(node::find("sid").unwrap())
    }

    #[test]
    fn results_are_read_and_other_lines_are_passed_on() {
        let mut record = record();
        for line in [
            r#"%node {"kernel":"7.2"}"#,
            "",
            "noise",
            r#"%result {"name":"live","ok":true,"said":"4","seconds":9}"#,
        ] {
            record.take(line).unwrap();
        }
        assert_eq!(record.versions["kernel"], "7.2");
        assert!(record.is_whole() && record.outcome("live").is_some() && record.outcome("x").is_none());
        record.take(r#"%result {"name":"x","ok":false,"said":"?","seconds":9}"#).unwrap();
        assert!(!record.is_whole());
    }

    #[test]
    fn a_result_that_cannot_be_read_is_an_error() {
        assert!(record().take("%result {\"name\":").is_err());
    }
}
