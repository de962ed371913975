//! `pause` and `resume`: a person's brake, in the state directory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::Status;
use super::force::one_line;
use super::options::duration;
use super::output::print;
use crate::daemon::holds::{Hold, Holds};
use crate::daemon::{clock, who};
use crate::leak::HoldKind;

/// Options of `pause`.
#[derive(Debug, ClapArgs)]
pub(super) struct PauseArgs {
    /// Why, for whoever wonders
    #[arg(long, value_name = "TEXT", value_parser = one_line)]
    reason: String,
    /// End by itself after this time; without, `resume` ends it
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    for_: Option<Duration>,
    #[command(flatten)]
    place: Place,
}

/// Options of `resume`.
#[derive(Debug, ClapArgs)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, ClapArgs)]
struct Place {
    /// Where the daemon keeps its state
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/cgroup-reaper",
        env = "CGROUP_REAPER_STATE_DIR"
    )]
    state_dir: PathBuf,
}

pub(super) fn pause(args: PauseArgs) -> anyhow::Result<Status> {
    let since = clock::wall();
    let until = args.for_.map(|time| since.checked_add(time)).transpose().context("--for is too long")?;
    let hold = Hold { reason: args.reason, since, until, by: Some(who::person()) };
    Holds::new(&args.place.state_dir)
        .begin(HoldKind::Pause, &hold)
        .context("not paused; is --state-dir the daemon's, and are you root?")?;
    print(&format!("paused: {hold}\n"))?;
    Ok(Status::Success)
}

pub(super) fn resume(args: &ResumeArgs) -> anyhow::Result<Status> {
    let holds = Holds::new(&args.place.state_dir);
    let before = holds.in_force(clock::wall());
    let ended = holds.end_all().context("not resumed; is --state-dir the daemon's, and are you root?")?;
    for (kind, hold) in before.iter().filter(|(kind, _)| ended.contains(kind)) {
        print(&format!("ended, {kind}: {hold}\n"))?;
    }
    if before.is_empty() {
        print("nothing was paused\n")?;
    }
    Ok(Status::Success)
}
