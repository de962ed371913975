//! What keeps the product from acting although something leaked: pauses, storms, rules, age; and what a person may lift.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "edits a bundle that the test made")]

use std::fs::File;
use std::time::Duration;

use anyhow::{Context as _, Result};
use reaper_tests::{
    CgroupView, Containerd, Crash, Daemon, DaemonOptions, Leak, Mode, Node, Reaper, read_audit, wait_until,
};
use reaper_userspace::daemon::clock;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

const SOON: Duration = Duration::from_mins(1);
const INTERVAL: Duration = Duration::from_millis(300);

fn start() -> Result<(Containerd, Reaper)> {
    let containerd = Containerd::start(Node::new(CgroupView::preferred()?)?)?;
    let reaper = Reaper::from_env(&containerd)?;
    Ok((containerd, reaper))
}

fn daemon(reaper: &Reaper, extra: &[&str]) -> Result<Daemon> {
    let options = DaemonOptions { mode: Mode::Enforce, grace: Duration::from_secs(1), interval: INTERVAL };
    reaper.daemon_with(&options, &[&["--probes", "poll"], extra].concat())
}

fn of(reaper: &Reaper, kind: &str) -> Result<Vec<Value>> {
    Ok(read_audit(&reaper.audit_log())?.into_iter().filter(|record| record["type"] == kind).collect())
}

fn series(daemon: &Daemon, series: &str) -> Result<u64> {
    let (_, page) = daemon.get("/metrics")?;
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.with_context(|| format!("no {series}"))?.parse().context("a number")
}

/// Waits until the daemon has refused an act because of this guard, and some looks more.
fn await_refusal(daemon: &Daemon, guard: &str) -> Result<()> {
    let name = format!("cgroup_reaper_vetoes_total{{guard=\"{guard}\"}}");
    wait_until("a refusal", SOON, || Ok(series(daemon, &name)? >= 1))?;
    std::thread::sleep(INTERVAL.saturating_mul(3));
    Ok(())
}

fn assert_untouched(leaks: &[&Leak]) -> Result<()> {
    for leak in leaks {
        assert_eq!(leak.dirs_left(), leak.dirs);
        assert_eq!(leak.members_left()?.len(), leak.members.len());
    }
    Ok(())
}

fn await_end(leaks: &[&Leak]) -> Result<()> {
    leaks.iter().try_for_each(|leak| wait_until("the end of the leak", SOON, || leak.is_gone()))
}

#[test]
fn a_storm_holds_across_a_restart_until_a_person_releases_it() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leaks = [
        containerd.crash("one", Crash::FrozenCreate)?,
        containerd.crash("two", Crash::ThawedCreate)?,
        containerd.crash("three", Crash::ThawedCreate)?,
    ];
    let limits = ["--storm-count", "2"];
    let first = daemon(&reaper, &limits)?;
    await_refusal(&first, "storm")?;
    assert_untouched(&leaks.each_ref())?;
    assert_eq!(series(&first, "cgroup_reaper_paused{by=\"storm\"}")?, 1);
    assert_eq!(series(&first, "cgroup_reaper_enforcing")?, 0);
    let (status, page) = first.get("/readyz?verbose")?;
    assert!(status == 200 && page.contains("acting ok: held, storm: 3 of 3"), "{page}");
    assert_eq!(first.stop()?, Some(0));

    let mut by_hand = reaper.clone().recording_in(containerd.node().dir().join("hand.jsonl"));
    let refused = by_hand.reap(&[&leaks[0].id])?;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stdout.contains("refused, storm: 3 of 3"), "{refused:?}");
    assert_untouched(&leaks.each_ref())?;
    let forced =
        by_hand.reap(&[&leaks[0].id, "--force-guard", "storm", "--reason", "INC-7: looked at it"])?;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(leaks[0].is_gone()?);
    by_hand = by_hand.recording_in(containerd.node().dir().join("hand.jsonl"));
    let intent = of(&by_hand, "reap.intent")?.remove(0);
    assert_eq!(intent["trigger"]["by"], "operator");
    assert_eq!(intent["trigger"]["uid"], 0);
    assert_eq!(intent["trigger"]["forced"]["guards"], serde_json::json!(["storm"]));
    assert_eq!(intent["trigger"]["forced"]["reason"], "INC-7: looked at it");

    // Two are left: not above the limit, and not half of it either.
    let second = daemon(&reaper, &limits)?;
    await_refusal(&second, "storm")?;
    assert_untouched(&leaks.each_ref()[1..])?;
    let resumed = reaper.brake(&["resume"])?;
    assert!(resumed.code == Some(0) && resumed.stdout.contains("ended, storm"), "{resumed:?}");
    await_end(&leaks.each_ref())?;
    assert_eq!(second.stop()?, Some(0));
    let told = |kind| of(&reaper, kind).map(|all| all.iter().filter(|one| one["hold"] == "storm").count());
    assert_eq!([told("pause")?, told("resume")?], [2, 1]);
    Ok(())
}

#[test]
fn a_burst_after_a_restart_of_containerd_waits_for_the_end_of_the_window() -> Result<()> {
    const WINDOW: Duration = Duration::from_secs(8);
    let (containerd, reaper) = start()?;
    let leaks =
        [containerd.crash("one", Crash::FrozenCreate)?, containerd.crash("two", Crash::ThawedCreate)?];
    containerd.stop()?;
    let restarted = clock::boot();
    containerd.serve()?;
    let daemon = daemon(&reaper, &["--storm-after-restart", "1", "--restart-window", "8s"])?;
    await_refusal(&daemon, "storm")?;
    assert_untouched(&leaks.each_ref())?;
    await_end(&leaks.each_ref())?;
    let intent = of(&reaper, "reap.intent")?.remove(0);
    assert!(intent["mono_ns"].as_u64().unwrap() >= restarted.after(WINDOW).as_nanos(), "{intent}");
    assert_eq!(daemon.stop()?, Some(0));
    assert_eq!(of(&reaper, "pause")?.len(), 0, "nobody has to release it");
    Ok(())
}

#[test]
fn a_pause_holds_the_daemon_and_reap_by_hand_and_survives_a_restart() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leak = containerd.crash("leak", Crash::FrozenCreate)?;
    let paused = reaper.brake(&["pause", "--reason", "kernel update", "--for", "1h"])?;
    assert_eq!(paused.code, Some(0), "{paused:?}");
    for _ in 0..2 {
        let daemon = daemon(&reaper, &[])?;
        await_refusal(&daemon, "paused")?;
        assert_untouched(&[&leak])?;
        assert_eq!(series(&daemon, "cgroup_reaper_paused{by=\"pause\"}")?, 1);
        let (status, page) = daemon.get("/readyz?verbose")?;
        assert!(status == 200 && page.contains("kernel update"), "{page}");
        assert_eq!(daemon.stop()?, Some(0));
    }
    for words in [&[leak.id.as_str()][..], &["--all", "--dry-run"]] {
        let refused = reaper.reap(words)?;
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stdout.contains("refused, paused: kernel update (since "), "{refused:?}");
    }
    let list = reaper.scan()?.list;
    assert_eq!(list["holds"][0]["reason"], "kernel update", "{list}");
    assert_eq!(list["holds"][0]["kind"], "pause", "{list}");
    let doctor = reaper.run(&["doctor"], SOON)?;
    assert!(doctor.stdout.contains("held, pause: kernel update"), "{doctor:?}");
    assert_untouched(&[&leak])?;

    let daemon = daemon(&reaper, &[])?;
    assert_eq!(reaper.brake(&["resume"])?.code, Some(0));
    await_end(&[&leak])?;
    assert_eq!(daemon.stop()?, Some(0));
    let record = of(&reaper, "pause")?.remove(0);
    assert_eq!((record["reason"].as_str(), record["uid"].as_u64()), (Some("kernel update"), Some(0)));
    assert!(reaper.brake(&["resume"])?.stdout.contains("nothing was paused"));
    Ok(())
}

#[test]
fn a_pause_that_expires_ends_by_itself() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leak = containerd.crash("leak", Crash::FrozenCreate)?;
    reaper.brake(&["pause", "--reason", "shortly", "--for", "6s"])?;
    let daemon = daemon(&reaper, &[])?;
    await_refusal(&daemon, "paused")?;
    assert_untouched(&[&leak])?;
    await_end(&[&leak])?;
    assert_eq!(daemon.stop()?, Some(0));
    Ok(())
}

#[test]
fn kinds_and_paths_that_are_to_be_left_are_left() -> Result<()> {
    let (containerd, reaper) = start()?;
    let half = containerd.crash("half", Crash::FrozenCreate)?;
    let [empty, path] =
        [containerd.crash("empty", Crash::ThawedCreate)?, containerd.crash("path", Crash::ThawedCreate)?];
    let rules = ["--observe-kind", "cgroup.half_created", "--protect-path", "/*/*-path"];
    let daemon = daemon(&reaper, &rules)?;
    await_end(&[&empty])?;
    await_refusal(&daemon, "mode_observe")?;
    assert_untouched(&[&half, &path])?;
    assert_eq!(daemon.stop()?, Some(0));
    let all = ["--all", "--protect-path", "/*/{*-half,*-path}"];
    let done = reaper.reap(&all)?;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_untouched(&[&half, &path])?;
    Ok(())
}

#[test]
fn an_annotation_of_the_bundle_protects_its_leak() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leak = containerd.crash("asks", Crash::FrozenCreateBusyRootfs)?;
    let file = leak.bundle.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let mut annotate = |value: &str| -> Result<()> {
        config["annotations"]["cgroup-reaper.io/protect"] = value.into();
        Ok(std::fs::write(&file, serde_json::to_vec(&config)?)?)
    };
    annotate("true")?;
    let refused = reaper.reap(&[&leak.id])?;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stdout.contains("refused, protected: its annotation"), "{refused:?}");
    assert_untouched(&[&leak])?;
    annotate("false")?;
    let done = reaper.reap(&[&leak.id])?;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(leak.is_gone()?);
    Ok(())
}

#[test]
fn age_can_be_lifted_with_a_reason_and_what_may_be_alive_never() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leak = containerd.crash("leak", Crash::FrozenCreate)?;
    let audit = reaper.audit_log();
    let audit = audit.to_str().context("UTF-8")?;
    let reap = |words: &[&str]| {
        reaper.run(&[&["reap", "--audit-log", audit, leak.id.as_str()], words].concat(), SOON)
    };
    let young = reap(&[])?;
    assert_eq!(young.code, Some(4), "{young:?}");
    assert!(young.stdout.contains("refused, too_young"), "{young:?}");
    for guard in ["foreign", "identity_changed", "source_unavailable", "paused"] {
        let never = reap(&["--force-guard", guard, "--reason", "x"])?;
        assert_eq!(never.code, Some(2), "{never:?}");
        assert!(never.stderr.contains(&format!("{guard} can never be lifted")), "{never:?}");
    }
    assert_untouched(&[&leak])?;
    let force = ["--force-guard", "too_young", "--reason", "INC-8"];
    let dry = reap(&[&force[..], &["--dry-run"]].concat())?;
    let member = leak.members.first().unwrap().pid.to_string();
    assert!(dry.code == Some(0) && dry.stdout.contains(&member), "{dry:?}");
    assert_untouched(&[&leak])?;
    let forced = reap(&force)?;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(leak.is_gone()?);
    let intent = of(&reaper, "reap.intent")?.remove(0);
    assert_eq!(intent["trigger"]["forced"]["guards"], serde_json::json!(["too_young"]));
    Ok(())
}

#[test]
fn nobody_acts_while_another_one_does() -> Result<()> {
    let (containerd, reaper) = start()?;
    let leak = containerd.crash("leak", Crash::ThawedCreate)?;
    std::fs::create_dir(reaper.state_dir())?;
    let lock = File::create(reaper.state_dir().join("act.lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let daemon = daemon(&reaper, &[])?;
    await_refusal(&daemon, "paused")?;
    assert_untouched(&[&leak])?;
    drop(lock);
    await_end(&[&leak])?;
    assert_eq!(daemon.stop()?, Some(0));
    Ok(())
}
