//! Plays the scenarios for whole nodes; runs in the machines of `cargo xtask lab test`: `lab_node [SCENARIO..]`.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    reaper_tests::whole::play(&names)
}
