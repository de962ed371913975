//! The observer as a whole: what `events` tells, what a killed create leaves as evidence, and that a daemon which lost
//! events knows the truth again at once.
#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests read the clock, make and remove cgroups, and stop a daemon"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reaper_tests::{
    CgroupView, Containerd, Crash, Daemon, DaemonOptions, Mode, Node, Reaper, Shape, wait_for, wait_until,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);
/// More than one ring holds: each makes two records of 80 bytes.
const OVERFLOW: usize = 4_000;

fn product() -> Result<PathBuf> {
    let binary = std::env::var_os("REAPER_BINARY").context(
        "REAPER_BINARY names no product to test; `cargo xtask test` builds it and sets the variable",
    )?;
    Ok(PathBuf::from(binary))
}

fn containerd() -> Result<Containerd> {
    Containerd::start(Node::new(CgroupView::preferred()?)?)
}

/// `cgroup-reaper events -f -o json`, ended with its value.
struct Events {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Events {
    fn follow(reaper: &Reaper) -> Result<Self> {
        let mut child = reaper
            .command(&["events", "--follow", "--output", "json", "--probes", "btf"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start events")?;
        let output = BufReader::new(child.stdout.take().context("piped")?);
        let lines = Arc::new(Mutex::new(vec![]));
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let parsed = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(parsed);
            }
        });
        Ok(Self { child, lines })
    }

    fn find(&self, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find(|line| wanted(line)).cloned()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Gone already: then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[test]
fn events_name_the_container_of_what_the_kernel_reports() -> Result<()> {
    let containerd = containerd()?;
    let reaper = Reaper::new(product()?, &containerd);
    // A container tells where others will be.
    let first = containerd.live("first", Shape::Plain)?;
    let events = Events::follow(&reaper)?;
    let name = |id: &str| format!("{}/{id}", containerd.namespace());
    // Attached when it reports something: an exec in a container that is there.
    wait_until("events", LIMIT, || {
        containerd.ctr(&["task", "exec", "--exec-id", "x", &first.id, "true"])?;
        let exec = events.find(|line| {
            text(line, "/kind") == "command-ended"
                && text(line, "/container") == name(&first.id)
                && text(line, "/command/invocation/verb") == "exec"
        });
        Ok(exec.is_some())
    })?;
    let killed = containerd.crash("killed", Crash::ThawedCreate)?;
    let create = wait_for("the end of the create", LIMIT, || {
        Ok(events.find(|line| {
            text(line, "/command/invocation/verb") == "create" && text(line, "/container") == name(&killed.id)
        }))
    })?;
    assert_eq!(create.pointer("/end/signal"), Some(&Value::from(9)), "{create}");
    assert!(create.pointer("/shim/tgid").is_some_and(Value::is_u64), "{create}");
    let made = wait_for("its cgroup", LIMIT, || {
        Ok(events
            .find(|line| text(line, "/kind") == "cgroup-made" && text(line, "/path").ends_with(&killed.id)))
    })?;
    assert!(text(&made, "/detail").contains("runc"), "{made}");
    Ok(())
}

/// The daemon is looking all the while: a look follows the first event of each create, before its end.
#[test]
fn a_create_that_is_killed_during_a_look_is_evidence_in_explain() -> Result<()> {
    let containerd = containerd()?;
    let reaper = Reaper::new(product()?, &containerd);
    let daemon = start(&reaper)?;
    let leak = containerd.crash("killed", Crash::ThawedCreate)?;
    let line = wait_for("evidence from the kernel", LIMIT, || kernel_evidence(&reaper, &leak.id))?;
    let what = text(&line, "/what");
    assert!(what.starts_with("create (process ") && what.contains("was killed by signal 9"), "{what}");
    drop(daemon);
    Ok(())
}

/// What the kernel says about a leak whose create was killed, by what the daemon has remembered.
fn kernel_evidence(reaper: &Reaper, id: &str) -> Result<Option<Value>> {
    let (_, answer) = reaper.json(&["explain", id, "-o", "json"], LIMIT)?;
    let evidence = answer.pointer("/item/evidence").and_then(Value::as_array).cloned().unwrap_or_default();
    let cause = text(&answer, "/item/cause") == "create_killed";
    Ok(evidence.into_iter().find(|one| text(one, "/source") == "kernel" && cause))
}

/// Looks only when something tells it to: the interval is longer than the test.
fn start(reaper: &Reaper) -> Result<Daemon> {
    let grace = Duration::from_millis(100);
    let daemon =
        reaper.daemon(&DaemonOptions { mode: Mode::Observe, grace, interval: Duration::from_mins(10) })?;
    let page = metrics(&daemon)?;
    ensure!(value(&page, "cgroup_reaper_probe_level{level=\"btf\"}")? > 0.0, "no probes: {page}");
    Ok(daemon)
}

fn metrics(daemon: &Daemon) -> Result<String> {
    Ok(daemon.get("/metrics")?.1)
}

fn value(page: &str, series: &str) -> Result<f64> {
    let line =
        page.lines().find_map(|line| line.strip_prefix(series)).with_context(|| format!("no {series}"))?;
    line.trim().parse().context("a number")
}

fn send(daemon: &Daemon, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(daemon.pid())?), signal)?)
}

#[test]
fn a_daemon_that_lost_events_knows_the_truth_at_once() -> Result<()> {
    let containerd = containerd()?;
    let reaper = Reaper::new(product()?, &containerd);
    let live = containerd.live("live", Shape::Plain)?;
    let daemon = start(&reaper)?;
    let tracked = || Ok(value(&metrics(&daemon)?, "cgroup_reaper_last_scan_timestamp_seconds")? > 0.0);
    wait_until("the first look", LIMIT, tracked)?;
    // Stopped, it reads nothing; a cgroup in a tracked one makes records until nothing more fits.
    send(&daemon, Signal::SIGSTOP)?;
    let dir = containerd.node().cgroups().freezer()?.dir(&live.cgroup).join("reaper-test-overflow");
    for _ in 0..OVERFLOW {
        fs::create_dir(&dir)?;
        fs::remove_dir(&dir)?;
    }
    let leaks = [Crash::ThawedCreate, Crash::FrozenCreate]
        .map(|crash| containerd.crash(&format!("{crash:?}").to_lowercase(), crash));
    let leaks: Vec<_> = leaks.into_iter().collect::<Result<_>>()?;
    send(&daemon, Signal::SIGCONT)?;
    let begun = Instant::now();
    wait_until("both leaks in the inventory", LIMIT, || {
        let page = metrics(&daemon)?;
        let mut found = 0.0;
        for kind in ["cgroup.empty", "cgroup.half_created"] {
            found += value(&page, &format!("cgroup_reaper_leaks{{kind=\"{kind}\",state=\"confirmed\"}}"))?;
        }
        Ok((found - 2.0).abs() < 0.5)
    })?;
    let took = begun.elapsed();
    let page = metrics(&daemon)?;
    assert!(value(&page, "cgroup_reaper_ebpf_events_lost_total{reason=\"ringbuf_full\"}")? > 0.0, "{page}");
    assert!(value(&page, "cgroup_reaper_resyncs_total{trigger=\"lost_events\"}")? > 0.0, "{page}");
    println!("{} leaks known {took:?} after the daemon went on", leaks.len());
    // Under a second where it runs alone; what is asserted leaves room for tests beside this one.
    assert!(took < Duration::from_secs(5), "{took:?} for {} leaks", leaks.len());
    assert!(live.still_alive(&containerd)?);
    Ok(())
}
