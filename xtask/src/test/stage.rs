//! Stages of tests: which binaries, how many at a time.
#![expect(clippy::print_stdout, reason = "passes the output of tests on")]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::tally::Tally;
use crate::cargo::{cargo, shown};

/// What a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// A compiler.
    Unit,
    /// Root on a real kernel.
    Kernel,
    /// The product as well.
    EndToEnd,
}

/// One `cargo test`, or several that count as one.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) group: Group,
    commands: &'static [&'static [&'static str]],
}

/// Two at a time, as the smallest machine has two processors and most of these tests wait.
pub(super) const STAGES: [Stage; 5] = [
    Stage {
        name: "unit tests",
        group: Group::Unit,
        commands: &[&["--workspace", "--lib", "--bins"], &["--workspace", "--doc"]],
    },
    Stage {
        name: "kernel tests",
        group: Group::Kernel,
        commands: &[&["--package", "reaper-tests", "--test", "kernel_*", "--", "--test-threads=2"]],
    },
    Stage {
        name: "fixture tests",
        group: Group::Kernel,
        commands: &[&["--package", "reaper-tests", "--test", "fixture_*", "--", "--test-threads=2"]],
    },
    // A share of what `cargo xtask test adversary` can play for hours.
    Stage {
        name: "adversary",
        group: Group::Kernel,
        commands: &[
            &["--package", "reaper-tests", "--test", "adversary", "--", "--seconds", "60"],
            &["--package", "reaper-tests", "--test", "adversary", "--", "--crash"],
        ],
    },
    Stage {
        name: "end to end tests",
        group: Group::EndToEnd,
        commands: &[&["--package", "reaper-tests", "--test", "e2e_*", "--", "--test-threads=2"]],
    },
];

// === impl Stage ===

impl Stage {
    pub(super) fn run(&self, product: Option<&PathBuf>) -> anyhow::Result<Tally> {
        if self.group == Group::EndToEnd {
            product.context("there is no product to test")?;
        }
        self.commands.iter().map(|args| run(args, product)).sum()
    }
}

/// Runs all binaries even if one fails, and passes their output on line by line.
fn run(args: &[&str], product: Option<&PathBuf>) -> anyhow::Result<Tally> {
    let mut command = cargo(&["test", "--locked", "--no-fail-fast"]);
    command.args(args).envs(product.map(|path| ("REAPER_BINARY", path)));
    stream(&mut command)
}

fn stream(command: &mut Command) -> anyhow::Result<Tally> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", shown(command)))?;
    let mut tally = Tally::default();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n')) {
        // Lines of a test may hold any bytes.
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        tally = [tally, Tally::of_line(&line)].into_iter().sum();
    }
    let status = child.wait().with_context(|| format!("cannot wait for {}", shown(command)))?;
    tally.broken = !status.success();
    Ok(tally)
}
