//! Checks on the sources that no compiler makes.
#![expect(clippy::print_stdout, reason = "a command speaks to the terminal")]

mod budget;
mod effects;
mod layers;
mod source;

use anyhow::ensure;
use clap::Subcommand;

use source::Source;

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Check {
    /// The modules of the userspace crate use only what their layer may
    Layers,
    /// No file has grown too long to read
    Budget,
    /// Effects are called only where they may be; lists every one
    Effects,
    /// All of them
    All,
}

/// What a check found.
#[derive(Debug, Default)]
struct Findings {
    /// To be read by people.
    notes: Vec<String>,
    /// Each fails the check: `file:line: what`.
    breaches: Vec<String>,
}

pub(crate) fn run(check: Check) -> anyhow::Result<()> {
    match check {
        Check::Layers => report("layers", &layers::check(&product()?)),
        Check::Budget => report("budget", &budget::check(&Source::read(&budget::CRATES)?)),
        Check::Effects => report("effects", &effects::check(&product()?)),
        Check::All => {
            let all = [Check::Layers, Check::Budget, Check::Effects];
            let failures: Vec<String> =
                all.into_iter().filter_map(|check| run(check).err()).map(|error| error.to_string()).collect();
            ensure!(failures.is_empty(), "{}", failures.join("; "));
            Ok(())
        }
    }
}

fn product() -> anyhow::Result<Vec<Source>> {
    Source::read(&["reaper-userspace/src"])
}

fn report(name: &str, findings: &Findings) -> anyhow::Result<()> {
    let Findings { notes, breaches } = findings;
    for line in notes.iter().chain(breaches) {
        println!("{line}");
    }
    ensure!(breaches.is_empty(), "check {name}: {} breaches", breaches.len());
    println!("check {name}: ok");
    Ok(())
}
