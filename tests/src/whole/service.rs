//! The daemon as the service that is shipped: readiness, watchdog, reload, and an act that is cut off.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::Shown;
use super::leaks::crash_create;
use super::machine::{Container, Machine, SOON};
use super::tools::{Unit, must, systemctl};
use crate::process::Incarnation;
use crate::reaper::read_audit;
use crate::runc::Faults;
use crate::wait::{wait_for, wait_until};

const UNIT: &str = "cgroup-reaper.service";
const SHIPPED: &str = "/lab/cgroup-reaper.service";
const LOG: &str = "/var/log/cgroup-reaper/audit.jsonl";
/// Enough that a kill takes a while.
const CROWD: &str = "i=0; while [ $i -lt 200 ]; do sleep 100000 & i=$((i + 1)); done; wait";
const SETTINGS: &str = "[Service]
Environment=CGROUP_REAPER_MODE=enforce CGROUP_REAPER_GRACE=1s CGROUP_REAPER_INTERVAL=5s
WatchdogSec=20s
";

/// Starts, reaps, reloads; is started again when it hangs and when it is killed in the middle of an act.
pub(super) fn service(machine: &Machine) -> Shown {
    install()?;
    systemctl(&["start", UNIT])?;
    let started = Unit::of(UNIT)?;
    ensure!(started.is_active() && started.get("StatusText").starts_with("enforce"), "{started:?}");
    reaps(machine)?;
    systemctl(&["reload", UNIT])?;
    wait_until("the reload in the journal", SOON, || {
        Ok(journal()?.contains("reload: looking at everything"))
    })?;
    ensure!(Unit::of(UNIT)?.get("MainPID") == started.get("MainPID"), "a reload is no restart");
    hangs()?;
    let tries = is_cut_off(machine)?;
    systemctl(&["stop", UNIT])?;
    let stopped = Unit::of(UNIT)?;
    ensure!(!stopped.is_failed(), "{stopped:?}");
    Ok(format!("reaps, reloads, watchdog restarts it, an act cut off (try {tries}) is closed and done again"))
}

/// The exposure of the shipped unit, as this systemd counts it.
pub(super) fn hardened(_: &Machine) -> Shown {
    // Debian 11 knows no --offline; later ones take the file as it is.
    install()?;
    let said = must("systemd-analyze", &["security", "--no-pager", UNIT])?;
    let line = said.lines().next_back().context("no last line")?;
    let word = line.split_once(": ").and_then(|(_, rest)| rest.split(' ').next()).context("no level")?;
    let level: f64 = word.parse().with_context(|| format!("level in {line:?}"))?;
    ensure!(level <= 3.5, "{line}");
    Ok(format!("exposure {word}"))
}

fn install() -> Result<()> {
    fs::copy("/lab/cgroup-reaper", "/usr/local/bin/cgroup-reaper").context("install the product")?;
    fs::copy(SHIPPED, Path::new("/etc/systemd/system").join(UNIT)).context("install the unit")?;
    let settings = Path::new("/etc/systemd/system").join(format!("{UNIT}.d"));
    fs::create_dir_all(&settings)?;
    fs::write(settings.join("lab.conf"), SETTINGS)?;
    systemctl(&["daemon-reload"]).map(drop)
}

/// A leak that is made while it runs is gone soon.
fn reaps(machine: &Machine) -> Result<()> {
    let container = machine.name("served");
    crash_create(machine, &container, true)?;
    gone(machine, &container)
}

fn gone(machine: &Machine, container: &Container) -> Result<()> {
    machine.await_nothing_within(Duration::from_mins(2), container).with_context(|| {
        let said = journal().unwrap_or_else(|error| format!("{error:#}"));
        let lines: Vec<&str> = said.lines().collect();
        lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("; ")
    })
}

/// A daemon that is stopped answers no watchdog.
fn hangs() -> Result<()> {
    let before = Unit::of(UNIT)?;
    main_process(&before)?.signal(Signal::STOP)?;
    wait_until("a restart by the watchdog", Duration::from_mins(3), || {
        let now = Unit::of(UNIT)?;
        Ok(now.is_active() && now.get("MainPID") != before.get("MainPID"))
    })
}

/// SIGKILL between intent and outcome; which try it was. The next start closes the act and reaps what is left.
fn is_cut_off(machine: &Machine) -> Result<u32> {
    for attempt in 1..=5 {
        let container = machine.name("crowd");
        orphan_crowd(machine, &container)?;
        let cut_off = kill_after_intent(&container)?;
        gone(machine, &container)?;
        let closed = records(&container, "reap.recovered")?;
        if cut_off {
            ensure!(closed == 1, "the act that was cut off is not closed in the log");
            return Ok(attempt);
        }
    }
    anyhow::bail!("never killed between intent and outcome")
}

fn orphan_crowd(machine: &Machine, container: &Container) -> Result<()> {
    let faults = Faults { host_pid: true, delete_crashes: true, ..Faults::default() };
    let init = machine.start(container, &faults, &["sh", "-c", CROWD])?;
    machine.await_members(container, 201)?;
    Machine::shim(container)?.kill()?;
    wait_until("containerd gives the task up", SOON, || Ok(Machine::task(&container.id)?.is_none()))?;
    init.kill()
}

/// True if the act was still open then.
fn kill_after_intent(container: &Container) -> Result<bool> {
    let main = main_process(&Unit::of(UNIT)?)?;
    wait_for("an intent", Duration::from_mins(2), || {
        Ok((records(container, "reap.intent")? > 0).then_some(()))
    })?;
    main.kill()?;
    wait_until("the end of the daemon", SOON, || Ok(!main.is_alive()?))?;
    Ok(records(container, "reap.outcome")? == 0)
}

fn records(container: &Container, kind: &str) -> Result<usize> {
    let field =
        |record: &Value, pointer: &str| record.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let is = |record: &&Value| {
        field(record, "/type").as_deref() == Some(kind)
            && field(record, "/target/container").as_ref() == Some(&container.id)
    };
    Ok(read_audit(Path::new(LOG))?.iter().filter(is).count())
}

fn main_process(unit: &Unit) -> Result<Incarnation> {
    let pid = unit.get("MainPID").parse().context("MainPID")?;
    Incarnation::of(pid)?.context("the daemon does not run")
}

fn journal() -> Result<String> {
    must("journalctl", &["--no-pager", "-o", "cat", "-u", UNIT])
}
