//! One worker: first the namespaces and the hierarchies, then, as the first process of the namespace, the rounds.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::options::{Options, Role};
use crate::stage::{self, Stage};
use crate::tally::{Failure, Tally};
use crate::world::World;
use crate::{crash, round};

const REPORT: Duration = Duration::from_secs(1);

/// Makes namespaces, plays in a child, and removes what is left.
pub(crate) fn enter(options: &Options, number: u64) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID).context("unshare")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("private mounts")?;
    let root = tempfile::tempdir()?;
    stage::mount_all(root.path())?;
    let inside = Command::new(std::env::current_exe()?)
        .args(options.words(&Role::Inside(number)))
        .env("REAPER_ADVERSARY_ROOT", root.path())
        .stdin(Stdio::null())
        .status()
        .context("play");
    stage::unmount_all(root.path(), &base(number, std::process::id()))?;
    let status = inside?;
    ensure!(status.success(), "worker {number} ended with {status}");
    Ok(())
}

/// Name of the cgroup that everything of a worker is in.
fn base(number: u64, parent: u32) -> String {
    format!("reaper-test-adversary-{parent}-{number}")
}

/// Plays every round of this worker.
pub(crate) fn run(options: &Options, number: u64) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("unshare")?;
    let root = PathBuf::from(std::env::var_os("REAPER_ADVERSARY_ROOT").context("no root")?);
    // Read before the own /proc hides it.
    let parent: u32 = fs::read_to_string("/proc/self/status")?
        .lines()
        .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
        .context("no parent")?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>).context("mount /proc")?;
    ensure!(std::process::id() == 1, "not the first process of a namespace");
    lose_directory().context("lose the working directory")?;
    let stages = Stage::all(&root, &base(number, parent))?;
    let mut world = World::new(stages)?;
    if options.crash {
        let rounds = crash::all(world)?;
        return report(&Tally { rounds, ..Tally::default() });
    }
    let mut tally = Tally::default();
    let (start, mut reported) = (Instant::now(), Instant::now());
    let last = options.first.saturating_add(options.rounds);
    let mut index = options.first.saturating_add(number);
    while index < last && start.elapsed().as_secs() < options.seconds && tally.failures.is_empty() {
        let played;
        (world, played) = round::play(world, options.seed, index)?;
        tally.rounds += 1;
        for (kind, place) in played.forced {
            *tally.forced.entry(kind.to_owned()).or_default() += 1;
            *tally.places.entry(place).or_default() += 1;
        }
        *tally.outcomes.entry(played.outcome).or_default() += 1;
        tally.failures.extend(played.failures.into_iter().map(|what| Failure { round: index, what }));
        if reported.elapsed() > REPORT {
            reported = Instant::now();
            report(&tally)?;
        }
        index = index.saturating_add(options.workers);
    }
    report(&tally)
}

/// A working directory that is gone, for this process and all that it makes.
fn lose_directory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    std::env::set_current_dir(directory.path())?;
    Ok(directory.close()?)
}

fn report(tally: &Tally) -> Result<()> {
    println!("{}", serde_json::to_string(tally)?);
    Ok(())
}
