//! Scenarios for a whole node: systemd as PID 1, the node's own containerd, the systemd cgroup driver.
//!
//! Unlike the fixtures above, this takes the machine as its own: it restarts containerd, makes units and reaps
//! everything. It runs in the machines of `cargo xtask lab test` and nowhere else.

mod leaks;
mod living;
mod machine;
mod nature;
mod service;
mod tools;
mod units;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use machine::Machine;

/// What a scenario shows, in words for a table; an error is what went wrong.
type Shown = Result<String>;

/// A name and what it does.
struct Scenario {
    name: &'static str,
    play: fn(&Machine) -> Shown,
}

/// In the order in which they are played.
const SCENARIOS: [Scenario; 10] = [
    Scenario { name: "doctor", play: nature::doctor },
    Scenario { name: "live", play: living::left_alone },
    Scenario { name: "half_created", play: leaks::half_created },
    Scenario { name: "thawed_create", play: leaks::thawed_create },
    Scenario { name: "orphaned", play: leaks::orphaned },
    Scenario { name: "failed_scope", play: units::failed_scope },
    Scenario { name: "misplaced", play: units::misplaced },
    Scenario { name: "scope_gone", play: units::scope_gone },
    Scenario { name: "hardened", play: service::hardened },
    Scenario { name: "service", play: service::service },
];

/// Plays the scenarios of these names, or all, and prints a line for each: `%result JSON`.
#[expect(clippy::print_stdout, reason = "the lab reads it")]
pub fn play(names: &[String]) -> Result<ExitCode> {
    ensure!(std::path::Path::new("/lab").is_dir(), "this takes a whole machine: cargo xtask lab test");
    if let Some(unknown) = names.iter().find(|name| !SCENARIOS.iter().any(|one| one.name == **name)) {
        bail!("no scenario is called {unknown}; there are {}", SCENARIOS.map(|one| one.name).join(", "));
    }
    let machine = Machine::take().context("take the machine")?;
    println!("%node {}", json!(nature::versions()?));
    let mut failed = false;
    for scenario in SCENARIOS.iter().filter(|one| names.is_empty() || names.iter().any(|n| n == one.name)) {
        let began = Instant::now();
        let shown = (scenario.play)(&machine);
        let (ok, said) = match &shown {
            Ok(said) => (true, said.clone()),
            Err(error) => (false, format!("{error:#}")),
        };
        failed |= !ok;
        let seconds = began.elapsed().as_secs();
        println!("%result {}", json!({"name": scenario.name, "ok": ok, "said": said, "seconds": seconds}));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
