//! Dies at every place of an act, by SIGKILL, and looks at what the next start makes of it.
//!
//! The act runs in a process of its own, with a real log. The next start must close exactly the acts that were on
//! record, say what is really left, leave no freezer closed, finish the work, and the chain must hold.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use reaper_userspace::audit::{After, Body, Journal, Outcome, OutcomeBody, Record, verify};
use reaper_userspace::daemon::{clock, recovery};
use reaper_userspace::plan::ReapPlan;
use reaper_userspace::reap::hook::{self, Point};
use reaper_userspace::reap::{Armed, Timing};

use crate::by_hand::{BOOT, intent_body, node};
use crate::round::prove;
use crate::world::World;

/// How an act in a process of its own ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Killed,
    /// The place was not passed that often.
    Complete,
}

/// Every place, in every view, frozen and not, at the first and at a later passage; returns how many crashed.
pub(crate) fn all(mut world: World) -> Result<u64> {
    let mut crashes = 0;
    for view in 0..3 {
        for frozen in [false, true] {
            for point in Point::ALL {
                for after in 0..3 {
                    let log = tempfile::tempdir()?;
                    let what = format!("view {view}, frozen {frozen}, {point:?} after {after}");
                    world.set_plain(view, frozen)?;
                    let ending = one(&mut world, point, after, log.path()).context(what)?;
                    world.clear()?;
                    crashes += u64::from(ending == Ending::Killed);
                }
            }
        }
    }
    Ok(crashes)
}

fn one(world: &mut World, point: Point, after: u32, directory: &Path) -> Result<Ending> {
    let log = directory.join("audit.jsonl");
    let ending = act_and_die(world, point, after, &log)?;
    world.processes.collect();
    let (mut journal, open) = Journal::open(&log, node(), clock::stamp())?;
    // The place before the intent leaves no trace; the end of an act is on record.
    let expected = usize::from(ending == Ending::Killed && point != Point::Opened);
    ensure!(open.len() == expected, "{} acts are open, not {expected}", open.len());
    let standing = world.is_standing();
    let was_frozen = world.others_froze;
    recovery::close(&mut journal, open, BOOT, &world.stage().layout)?;
    if expected == 1 {
        let told = last_recovered(&log)?;
        ensure!(
            matches!(told, After::Remains { .. }) == standing,
            "told {told:?}, and it stands: {standing}"
        );
        ensure!(was_frozen || !world.is_freeze_requested(), "a freezer is left closed");
    }
    if standing {
        finish(world, &mut journal)?;
    }
    drop(journal);
    ensure!(!world.is_standing() && world.is_leak_dead(), "the work is not finished");
    let chain = verify(&log)?;
    ensure!(chain.open.is_empty(), "{chain:?}");
    Ok(ending)
}

/// Runs an act in a child that kills itself at the place.
fn act_and_die(world: &World, point: Point, after: u32, log: &Path) -> Result<Ending> {
    #[expect(
        unsafe_code,
        reason = "the leak's processes are this process's children, so is the one that acts"
    )]
    // SAFETY: this process has no other thread.
    let forked = unsafe { fork() }?;
    let ForkResult::Parent { child } = forked else {
        let mut passed = 0;
        hook::install(move |here| {
            if here == point {
                if passed == after {
                    let _never = nix::sys::signal::raise(Signal::SIGKILL);
                }
                passed += 1;
            }
        });
        let code = i32::from(
            Journal::open(log, node(), clock::stamp())
                .map_err(anyhow::Error::from)
                .and_then(|(mut journal, _)| finish(world, &mut journal))
                .is_err(),
        );
        #[expect(clippy::exit, reason = "a fork's memory is not its own to unwind")]
        std::process::exit(code);
    };
    let status = waitpid(child, None)?;
    if let WaitStatus::Signaled(_, Signal::SIGKILL, _) = status {
        return Ok(Ending::Killed);
    }
    ensure!(status == WaitStatus::Exited(child, 0), "the act ended with {status:?}");
    Ok(Ending::Complete)
}

/// The whole act.
fn finish(world: &World, journal: &mut Journal) -> Result<()> {
    let planned = prove(world).map_err(anyhow::Error::msg)?;
    let armed = Armed::open(ReapPlan::new(planned), Arc::clone(&world.stage().layout))?;
    let fresh = prove(world).map_err(anyhow::Error::msg)?;
    let intent = journal.intent(clock::stamp(), "leak".to_owned(), intent_body(&fresh))?;
    let report = armed.fire(&fresh, &intent, Timing::start(clock::boot))?;
    ensure!(report.outcome() == Outcome::Reaped, "{report:#?}");
    let body = OutcomeBody::new(report.outcome(), After::Gone, report.took);
    Ok(journal.outcome(clock::stamp(), intent, body)?)
}

fn last_recovered(log: &Path) -> Result<After> {
    let text = std::fs::read_to_string(log)?;
    let mut found = None;
    for line in text.lines() {
        let record: Record = serde_json::from_str(line)?;
        if let Body::ReapRecovered { body, .. } = record.body {
            found = Some(body.after);
        }
    }
    found.context("no act was closed")
}
