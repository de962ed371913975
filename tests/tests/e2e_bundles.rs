//! Dead bundles on a real containerd: what is mounted in them goes, what lives or is in use stays, and containerd starts
//! fast afterwards.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reaper_tests::{
    CgroupView, Containerd, Crash, Finished, Leak, Node, Reaper, Shape, read_audit, wait_until,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);
/// One busy bundle costs a start of containerd 1.6 five seconds.
const SLOW: Duration = Duration::from_secs(5);
const FAST: Duration = Duration::from_secs(3);

fn start() -> Result<(Containerd, Reaper)> {
    let containerd = Containerd::start(Node::new(CgroupView::preferred()?)?)?;
    let reaper = Reaper::from_env(&containerd)?;
    Ok((containerd, reaper))
}

/// Busy bundles, all at once: each takes ten seconds to make.
fn busy(containerd: &Containerd, count: usize) -> Result<Vec<Leak>> {
    std::thread::scope(|scope| {
        let make = |number| move || containerd.crash(&format!("busy{number}"), Crash::FrozenCreateBusyRootfs);
        let makers: Vec<_> = (0..count).map(|number| scope.spawn(make(number))).collect();
        makers
            .into_iter()
            .map(|maker| maker.join().map_err(|_payload| anyhow::anyhow!("panicked"))?)
            .collect()
    })
}

/// By hand, as an administrator does it: the inits, and what is left of the cgroups.
fn kill_by_hand(containerd: &Containerd, leaks: &[Leak]) -> Result<()> {
    leaks.iter().try_for_each(|leak| containerd.node().cgroups().remove(&leak.cgroup))
}

fn mounted(bundle: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("read mountinfo")?;
    let rootfs = bundle.join("rootfs");
    Ok(table.lines().filter_map(|line| line.split(' ').nth(4)).any(|target| Path::new(target) == rootfs))
}

fn any_mounted(leaks: &[Leak]) -> Result<bool> {
    leaks.iter().try_fold(false, |any, leak| Ok(any || mounted(&leak.bundle)?))
}

fn once(reaper: &Reaper) -> Result<Finished> {
    let log = reaper.audit_log();
    let args = ["run", "--once", "--mode", "enforce", "--grace", "1s", "--audit-log", &log.to_string_lossy()];
    reaper.run(&args, LIMIT)
}

fn outcomes(reaper: &Reaper, kind: &str) -> Result<Vec<Value>> {
    let records = read_audit(&reaper.audit_log())?;
    let is = |record: &Value, pointer: &str, text: &str| {
        record.pointer(pointer).is_some_and(|value| value == text)
    };
    let wanted = |record: &Value| is(record, "/type", "reap.outcome") && is(record, "/target/kind", kind);
    Ok(records.into_iter().filter(wanted).collect())
}

fn items(reaper: &Reaper, kind: &str) -> Result<Vec<Value>> {
    let (_, list) = reaper.json(&["scan", "-o", "json", "--grace", "0s"], LIMIT)?;
    let items = list.pointer("/items").and_then(Value::as_array).cloned().context("items")?;
    Ok(items.into_iter().filter(|item| item.pointer("/kind").is_some_and(|value| value == kind)).collect())
}

#[test]
fn three_bundles_whose_inits_were_killed_by_hand_are_unmounted_and_containerd_starts_fast_again() -> Result<()>
{
    let (containerd, reaper) = start()?;
    let live = containerd.live("live", Shape::Several)?;
    let leaks = busy(&containerd, 3)?;
    let slow = containerd.restart()?;
    ensure!(slow > SLOW, "three busy bundles cost {slow:?} only");
    kill_by_hand(&containerd, &leaks)?;
    ensure!(leaks.iter().all(|leak| leak.bundle.exists()) && any_mounted(&leaks)?, "nothing to reap");

    let finished = once(&reaper)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    ensure!(!any_mounted(&leaks)?, "{finished:?}");
    ensure!(leaks.iter().all(|leak| leak.bundle.exists()), "the directories are containerd's");
    let outcomes = outcomes(&reaper, "bundle.dead")?;
    ensure!(outcomes.len() == 3, "{outcomes:?}");
    ensure!(
        outcomes.iter().all(|one| one.pointer("/outcome").is_some_and(|o| o == "reaped")),
        "{outcomes:?}"
    );

    let fast = containerd.restart()?;
    ensure!(fast < FAST, "{fast:?} with the mounts gone, {slow:?} before");
    ensure!(leaks.iter().all(|leak| !leak.bundle.exists()), "containerd removes what is not busy");
    ensure!(live.still_alive(&containerd)?);
    Ok(())
}

/// A process whose working directory is in a bundle's rootfs; ended and waited for when dropped.
struct Squatter(Child);

impl Squatter {
    fn in_rootfs(bundle: &Path) -> Result<Self> {
        let mut command = Command::new("sleep");
        command.arg("100000").current_dir(bundle.join("rootfs")).stdin(Stdio::null());
        Ok(Self(command.spawn().context("start sleep")?))
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("end the squatter");
    }
}

#[test]
fn whoever_holds_a_dead_rootfs_is_named_and_left_alone_and_the_mount_goes_when_they_do() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leaks = busy(&containerd, 1)?;
    let leak = leaks.first().context("a leak")?;
    let mut squatter = Squatter::in_rootfs(&leak.bundle)?;
    kill_by_hand(&containerd, &leaks)?;
    let finished = once(&reaper)?;
    ensure!(finished.code == Some(5), "{finished:?}");
    ensure!(mounted(&leak.bundle)?);
    ensure!(squatter.0.try_wait()?.is_none(), "nobody may end it");
    let told = outcomes(&reaper, "bundle.dead")?;
    let reason =
        told.first().and_then(|one| one.pointer("/reason")).and_then(Value::as_str).unwrap_or_default();
    let named = format!("held by process {} sleep", squatter.0.id());
    ensure!(reason.contains("EBUSY") || reason.contains("busy"), "{reason}");
    ensure!(reason.contains(&named), "{reason}");
    drop(squatter);
    let finished = once(&reaper)?;
    ensure!(finished.code == Some(0) && !mounted(&leak.bundle)?, "{finished:?}");
    Ok(())
}

#[test]
fn a_dead_bundle_is_found_explained_and_not_touched_while_containerd_does_not_answer() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leaks = busy(&containerd, 1)?;
    let leak = leaks.first().context("a leak")?;
    kill_by_hand(&containerd, &leaks)?;
    wait_until("a confirmed bundle", LIMIT, || {
        let found = items(&reaper, "bundle.dead")?;
        Ok(found.iter().any(|item| item.pointer("/state").is_some_and(|state| state == "confirmed")))
    })?;
    let explained = reaper.run(&["explain", &leak.id, "--grace", "0s"], LIMIT)?.stdout;
    for part in ["bundle.dead", "still mounted", "umount", "would reap: yes", &leak.bundle.to_string_lossy()]
    {
        ensure!(explained.contains(part), "{explained}");
    }
    containerd.pause()?;
    let finished = once(&reaper);
    containerd.resume()?;
    let finished = finished?;
    ensure!(
        finished.code == Some(1) && finished.stderr.contains("no answer, so nobody knows"),
        "nothing is confirmed: {finished:?}"
    );
    ensure!(mounted(&leak.bundle)?, "touched although containerd was asked in vain");
    Ok(())
}

#[test]
fn sweep_reaps_what_dead_shims_left_before_containerd_starts_and_nothing_that_lives() -> Result<()> {
    let (containerd, reaper) = start()?;
    let live = [containerd.live("live", Shape::Several)?, containerd.live("paused", Shape::Paused)?];
    let leaks = busy(&containerd, 3)?;
    let log = reaper.audit_log();
    // Other containerds on the machine may take long to start.
    let sweep = ["sweep", "--timeout", "50s", "--audit-log", &log.to_string_lossy()];
    let refused = reaper.run(&sweep, LIMIT)?;
    ensure!(
        refused.code == Some(4) && refused.stdout.contains("serves"),
        "while containerd runs: {refused:?}"
    );
    ensure!(any_mounted(&leaks)? && leaks.iter().all(|leak| !leak.members.is_empty()));

    containerd.stop()?;
    let finished = reaper.run(&sweep, LIMIT)?;
    ensure!(finished.code == Some(0) && finished.stdout.contains("3 reaped"), "{finished:?}");
    for leak in &leaks {
        ensure!(leak.is_gone()? && !mounted(&leak.bundle)?, "{leak:?}: {finished:?}");
    }
    let took = containerd.serve()?;
    ensure!(took < FAST, "{took:?}");
    for one in &live {
        ensure!(one.still_alive(&containerd)?, "{one:?}");
    }
    Ok(())
}

#[test]
fn sweep_leaves_a_container_whose_shim_died_while_containerd_was_away() -> Result<()> {
    let (containerd, reaper) = start()?;
    let live = containerd.live("orphan", Shape::Plain)?;
    containerd.stop()?;
    for shim in reaper_tests::processes_naming(&[&format!("-id {} ", live.id)])? {
        shim.kill()?;
    }
    let log = reaper.audit_log();
    let finished =
        reaper.run(&["sweep", "--timeout", "50s", "--audit-log", &log.to_string_lossy()], LIMIT)?;
    ensure!(finished.code == Some(0) && finished.stdout.contains("0 reaped"), "{finished:?}");
    ensure!(live.init.is_alive()?, "its init lives: containerd or an operator decides");
    ensure!(mounted(&containerd.bundle(&live.id))?);
    Ok(())
}
