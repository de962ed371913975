//! The daemon reaps leaks as they happen, shows what it does, and ends in order.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "tests read the clock")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use reaper_tests::{
    CgroupView, Containerd, Crash, Daemon, DaemonOptions, Leak, Mode, Node, Reaper, Shape, read_audit,
    wait_until,
};
use reaper_userspace::audit::verify;
use serde_json::Value;

/// Long enough for a maker of leaks to look at its work before the daemon ends it.
const GRACE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_mins(1);
/// With probes: no periodic look falls into the test.
const FAR: Duration = Duration::from_mins(10);
/// Without them.
const NEAR: Duration = Duration::from_millis(500);

const fn options(mode: Mode, interval: Duration) -> DaemonOptions {
    DaemonOptions { mode, grace: GRACE, interval }
}

fn records(reaper: &Reaper, kind: &str) -> Result<Vec<Value>> {
    let all = read_audit(&reaper.audit_log())?;
    Ok(all.into_iter().filter(|record| record["type"] == kind).collect())
}

/// The value of a series, as the page spells it.
fn metric(daemon: &Daemon, series: &str) -> Result<f64> {
    let (status, page) = daemon.get("/metrics")?;
    assert_eq!(status, 200);
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.with_context(|| format!("no {series}"))?.parse().context("a number")
}

fn assert_page_is_sound(daemon: &Daemon) -> Result<()> {
    let (_, page) = daemon.get("/metrics")?;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .spawn()
        .context("promtool")?;
    promtool.stdin.take().unwrap().write_all(page.as_bytes())?;
    assert!(promtool.wait()?.success(), "{page}");
    for path in ["/livez", "/readyz"] {
        assert_eq!(daemon.get(path)?.0, 200, "{path}");
    }
    Ok(())
}

/// What each crash leaves and why, whatever tells the daemon to look.
const VERDICTS: [(Crash, &str, &str); 3] = [
    (Crash::FrozenCreate, "cgroup.half_created", "create_killed"),
    (Crash::OrphanedChildren, "cgroup.orphaned", "delete_failed"),
    (Crash::ThawedCreate, "cgroup.empty", "unknown"),
];

/// Leaks made while it runs are confirmed and reaped, and everything that is shown says so.
fn leaks_are_reaped_as_they_happen(view: CgroupView, probes: &str) -> Result<()> {
    let containerd = Containerd::start(Node::new(view)?)?;
    let reaper = Reaper::from_env(&containerd)?;
    let (reaper, interval) = match probes {
        "classic" => (reaper.with_tracefs(), FAR),
        "poll" => (reaper, NEAR),
        _ => (reaper, FAR),
    };
    let live = containerd.live("live", Shape::Plain)?;
    let daemon = reaper.daemon_with(&options(Mode::Enforce, interval), &["--probes", probes])?;
    assert!(
        (metric(&daemon, &format!("cgroup_reaper_probe_level{{level=\"{probes}\"}}"))? - 1.0).abs() < 0.1
    );
    let leaks: Vec<Leak> = std::thread::scope(|scope| {
        let crash = |crash| containerd.crash(&format!("{crash:?}").to_lowercase(), crash);
        let makers = VERDICTS.map(|(how, ..)| scope.spawn(move || crash(how)));
        makers.into_iter().map(|maker| maker.join().unwrap()).collect::<Result<_>>()
    })?;
    wait_until("the end of all leaks", SOON, || {
        leaks.iter().try_fold(true, |all, leak| Ok(all && leak.is_gone()?))
    })?;
    wait_until("all outcomes", SOON, || Ok(records(&reaper, "reap.outcome")?.len() == leaks.len()))?;
    assert!(live.still_alive(&containerd)?);
    for (leak, (_, kind, cause)) in leaks.iter().zip(VERDICTS) {
        let confirmed = records(&reaper, "leak.confirmed")?;
        let record =
            confirmed.iter().find(|record| record["target"]["container"] == leak.id.as_str()).unwrap();
        assert_eq!(record["target"]["kind"], kind);
        // How a create ended only typed probes see; nothing but the word for it depends on that.
        let seen = probes == "btf" && record["trigger"]["rule"] == "create_killed";
        assert!(seen || record["trigger"]["rule"] == cause, "{record}");
        let late = record["detection_ms"].as_f64().unwrap() - 1e3 * GRACE.as_secs_f64();
        println!("{view:?} {probes}: {:?} confirmed {late:.0} ms after the grace", leak.crash);
        assert!(late > -20.0, "{record}");
        let series = format!("cgroup_reaper_reaps_total{{kind=\"{kind}\",outcome=\"reaped\"}}");
        assert!((metric(&daemon, &series)? - 1.0).abs() < 0.1, "{series}");
    }
    assert!(metric(&daemon, "cgroup_reaper_bystander_kills_total")? < 0.1);
    assert_page_is_sound(&daemon)?;
    assert_ends_in_order(daemon, &reaper)
}

fn assert_ends_in_order(daemon: Daemon, reaper: &Reaper) -> Result<()> {
    let told = Instant::now();
    assert_eq!(daemon.stop()?, Some(0));
    assert!(told.elapsed() < Duration::from_secs(2), "{:?}", told.elapsed());
    assert_eq!(records(reaper, "daemon.stop")?.len(), 1);
    assert!(verify(&reaper.audit_log()).is_ok());
    Ok(())
}

/// One test for each level of the ladder and each layout: the same verdicts.
macro_rules! levels {
    ($($test:ident = $view:ident, $probes:literal;)*) => { $(
        #[test]
        fn $test() -> Result<()> {
            leaks_are_reaped_as_they_happen(CgroupView::$view, $probes)
        }
    )* };
}

levels! {
    leaks_are_reaped_as_they_happen_with_typed_probes_on_cgroup_v2 = V2, "btf";
    leaks_are_reaped_as_they_happen_with_typed_probes_on_cgroup_v1 = V1, "btf";
    leaks_are_reaped_as_they_happen_with_classic_probes_on_cgroup_v2 = V2, "classic";
    leaks_are_reaped_as_they_happen_with_classic_probes_on_cgroup_v1 = V1, "classic";
    leaks_are_reaped_as_they_happen_without_probes_on_cgroup_v2 = V2, "poll";
    leaks_are_reaped_as_they_happen_without_probes_on_cgroup_v1 = V1, "poll";
}
