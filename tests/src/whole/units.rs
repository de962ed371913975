//! Scopes that failed: reset where they are a container's that is gone; and what a runtime of old makes of one.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Shown;
use super::machine::{Container, Machine, SOON};
use super::tools::{Product, Unit, must, systemctl, text};
use crate::command::run;
use crate::process::Incarnation;
use crate::runc::Faults;
use crate::wait::wait_until;

const SLEEP: [&str; 2] = ["sleep", "100000"];
/// Two of them begin like a container's scope and are none.
const STRANGERS: [&str; 4] = ["reaper-stranger", "crio-3f0c", "cri-containerd-", r"cri-containerd-a\x2db"];

/// A container's scope that ran into its time limit is reset, strangers' are not, and the next container of the name
/// gets its scope.
pub(super) fn failed_scope(machine: &Machine) -> Shown {
    let container = machine.name("failed");
    fail(&container)?;
    for stranger in STRANGERS {
        fail_scope(&format!("{stranger}.scope"), "system.slice")?;
    }
    let unit = Unit::of(&container.scope())?;
    let result = unit.get("Result").to_owned();
    ensure!(unit.is_failed(), "the scope should be failed: {unit:?}");
    let item = Product::confirmed(&container.id, "unit.failed")?;
    ensure!(text(&item, "/target/unit") == container.scope(), "{item:#}");
    let shown = Product::scan()?;
    let of_stranger = |item: &serde_json::Value| {
        STRANGERS.iter().any(|name| text(item, "/target/unit") == format!("{name}.scope"))
    };
    ensure!(!shown.iter().any(of_stranger), "a stranger's scope is shown: {shown:?}");
    machine.product.enforce(0)?;
    machine.await_nothing(&container)?;
    for stranger in STRANGERS {
        let unit = Unit::of(&format!("{stranger}.scope"))?;
        ensure!(unit.is_failed(), "{stranger}.scope should still be failed: {unit:?}");
        systemctl(&["reset-failed", "--", &format!("{stranger}.scope")])?;
    }
    let init = machine.start(&container, &Faults::default(), &SLEEP)?;
    ensure!(machine.cgroups.members(&container.cgroup())?.contains(&init), "the next container is misplaced");
    Machine::end(&container)?;
    Ok(format!("failed ({result}), reset; {} strangers' left", STRANGERS.len()))
}

/// A failed scope that nobody resets in time: what the runtime makes of the container that needs its name.
pub(super) fn misplaced(machine: &Machine) -> Shown {
    let container = machine.name("mis");
    fail(&container)?;
    let started = machine.run(&container, &Faults::default(), &SLEEP)?;
    if started.code != Some(0) {
        ensure!(
            Product::item(&container.id)?.is_none_or(|item| text(&item, "/kind") != "container.misplaced")
        );
        systemctl(&["reset-failed", "--", &container.scope()])?;
        Machine::ctr(&["container", "rm", &container.id])?;
        let why = started.stderr.trim().rsplit(": ").next().unwrap_or_default().to_owned();
        return Ok(format!("the runtime refuses: {why}"));
    }
    let init = Machine::init(&container)?;
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", init.pid)).context("cgroups of init")?;
    let elsewhere = cgroups.lines().any(|line| line.ends_with(":/system.slice/containerd.service"));
    if !elsewhere {
        ensure!(Product::item(&container.id)?.is_none(), "a container in its scope is shown");
        Machine::end(&container)?;
        return Ok("the runtime resets the scope".to_owned());
    }
    let split = cgroups.lines().any(|line| line.ends_with(&container.scope()));
    reported_and_left(machine, &container, &init)?;
    end_lost(&container, &init)?;
    systemctl(&["reset-failed", "--", &container.scope()])?;
    let how = if split { "split between its scope and containerd.service" } else { "in containerd.service" };
    Ok(format!("{how}; reported, nothing touched"))
}

fn reported_and_left(machine: &Machine, container: &Container, init: &Incarnation) -> Result<()> {
    let (service, before) = service()?;
    let item = Product::item(&container.id)?.context("a misplaced container is not reported")?;
    let is = (text(&item, "/kind"), text(&item, "/state"), text(&item, "/cause"));
    ensure!(is == ("container.misplaced", "protected", "unit_exists"), "{item:#}");
    let explained = Product::run(&["explain", text(&item, "/id")])?;
    ensure!(explained.stdout.contains("reset-failed"), "no remedy: {explained:?}");
    machine.product.enforce(0)?;
    let (again, after) = self::service()?;
    ensure!(service == again, "containerd was restarted");
    ensure!(before.is_subset(&after), "processes of containerd.service are gone: {before:?} {after:?}");
    ensure!(init.is_alive()? && Machine::task(&container.id)?.is_some(), "the container is gone");
    ensure!(Unit::of(&container.scope())?.is_failed(), "the failed scope of a live container was reset");
    Ok(())
}

/// containerd's process number, and everything in its service.
fn service() -> Result<(String, BTreeSet<Incarnation>)> {
    let unit = Unit::of("containerd.service")?;
    let mut members = BTreeSet::new();
    for dir in crate::cgroup::Cgroups::mounted()?.dirs("/system.slice/containerd.service") {
        members.extend(crate::process::members(&dir)?);
    }
    // Shims and containers stay; containerd's own helpers come and go.
    members.retain(|member| !member.comm().starts_with("runc"));
    Ok((unit.get("MainPID").to_owned(), members))
}

/// A live container whose init somebody moved away, so that systemd took its scope for finished.
pub(super) fn scope_gone(machine: &Machine) -> Shown {
    let container = machine.name("moved");
    let init = machine.start(&container, &Faults::default(), &SLEEP)?;
    machine.cgroups.enter("/reaper-elsewhere", &BTreeSet::from([init]))?;
    wait_until("the end of the scope", SOON, || Ok(Unit::of(&container.scope())?.is_gone()))?;
    let item = Product::item(&container.id)?.context("a container outside of its cgroup is not reported")?;
    ensure!((text(&item, "/kind"), text(&item, "/cause")) == ("container.misplaced", "unknown"), "{item:#}");
    machine.product.enforce(0)?;
    ensure!(init.is_alive()?, "the init was killed");
    ensure!(Machine::task(&container.id)?.is_some(), "the task is gone");
    end_lost(&container, &init)?;
    machine.cgroups.remove("/reaper-elsewhere")?;
    Ok("lives elsewhere; reported, left alone".to_owned())
}

/// The runtime's own kill looks for the cgroup, which is not there.
fn end_lost(container: &Container, init: &Incarnation) -> Result<()> {
    init.kill()?;
    wait_until("the end of the task", SOON, || {
        Ok(Machine::task(&container.id)?.is_none_or(|(_, status)| status == "STOPPED"))
    })?;
    Machine::end(container)
}

fn fail(container: &Container) -> Result<()> {
    fail_scope(&container.scope(), container.slice())
}

/// A scope that systemd ends after a second, for which it counts as failed.
fn fail_scope(scope: &str, slice: &str) -> Result<()> {
    let mut command = Command::new("systemd-run");
    command.args(["--quiet", "--scope", "--slice", slice, "-p", "RuntimeMaxSec=1"]);
    command.args([&format!("--unit={scope}"), "sleep", "100"]);
    let ended = run(&mut command, Duration::from_mins(2))?;
    ensure!(ended.code != Some(0), "systemd-run should have been ended: {ended:?}");
    wait_until(&format!("{scope} failed"), SOON, || Ok(Unit::of(scope)?.is_failed()))
        .with_context(|| must("systemctl", &["show", "--", scope]).unwrap_or_default())
}
