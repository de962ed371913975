//! Leaks of the systemd cgroup driver: scope, cgroup, processes and mounts go, and containerd starts fast again.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Shown;
use super::machine::{Container, Machine, SOON};
use super::nature::versions;
use super::tools::{Product, Unit, restart, text};
use crate::runc::{Faults, Hook};
use crate::wait::wait_until;

const SLEEP: [&str; 2] = ["sleep", "100000"];
/// A start with a leak always takes 5 s and more: containerd waits that long for it.
const QUICK: Duration = Duration::from_secs(4);
/// A busy machine can make any one start slow.
const STARTS: u32 = 6;

/// `runc create` dies with the init frozen.
pub(super) fn half_created(machine: &Machine) -> Shown {
    let container = machine.name("half");
    crash_create(machine, &container, true)?;
    ensure!(Unit::of(&container.scope())?.is_active(), "the scope should be active");
    ensure!(machine.cgroups.is_frozen(&container.cgroup())?, "the init should be frozen");
    // containerd 1.4 needs 100 s, longer than its unit may take to start.
    let old = versions()?.get("containerd").is_some_and(|version| version.starts_with("1.4."));
    let leaked = if old { None } else { Some(restart("containerd")?) };
    let item = Product::confirmed(&container.id, "cgroup.half_created")?;
    let steps = text(&item, "/cause").to_owned();
    machine.product.enforce(0)?;
    machine.await_nothing(&container)?;
    let start = match leaked {
        None => "containerd 1.4 not restarted".to_owned(),
        Some(leaked) => {
            let reaped = quick_start()?;
            ensure!(reaped < QUICK, "containerd started in {reaped:?}, and with the leak in {leaked:?}");
            format!("containerd {:.1} s → {:.1} s", leaked.as_secs_f64(), reaped.as_secs_f64())
        }
    };
    Ok(format!("{steps}, reaped; {start}"))
}

/// The quickest of a few starts, at most until one was quick.
fn quick_start() -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..STARTS {
        best = best.min(restart("containerd")?);
        if best < QUICK {
            break;
        }
    }
    Ok(best)
}

/// `runc create` dies, and its init follows by itself. systemd removes what it manages.
pub(super) fn thawed_create(machine: &Machine) -> Shown {
    let container = machine.name("thawed");
    crash_create(machine, &container, false)?;
    wait_until("the end of the init", SOON, || Ok(machine.cgroups.members(&container.cgroup())?.is_empty()))?;
    let left = settled_dirs(machine, &container)?;
    if left == 0 {
        ensure!(Product::item(&container.id)?.is_none(), "scan shows what is gone");
        machine.await_nothing(&container)?;
        return Ok("systemd removed it".to_owned());
    }
    Product::confirmed(&container.id, "cgroup.empty")?;
    machine.product.enforce(0)?;
    machine.await_nothing(&container)?;
    Ok(format!("systemd left it in {left} hierarchies; reaped"))
}

/// Hierarchies that still have it once the unit is gone.
fn settled_dirs(machine: &Machine, container: &Container) -> Result<usize> {
    wait_until("the end of the scope", SOON, || Ok(Unit::of(&container.scope())?.is_gone()))?;
    Ok(machine.cgroups.dirs(&container.cgroup()).len())
}

/// Shim, `runc delete` and init die; two children live on.
pub(super) fn orphaned(machine: &Machine) -> Shown {
    let container = machine.name("orphan");
    let faults = Faults { host_pid: true, delete_crashes: true, ..Faults::default() };
    let several = ["sh", "-c", "sleep 100000 & sleep 100000 & wait"];
    let init = machine.start(&container, &faults, &several)?;
    machine.await_members(&container, 3)?;
    Machine::shim(&container)?.kill()?;
    wait_until("containerd gives the task up", SOON, || Ok(Machine::task(&container.id)?.is_none()))?;
    init.kill()?;
    machine.await_members(&container, 2)?;
    Machine::settled(&container)?;
    Product::confirmed(&container.id, "cgroup.orphaned")?;
    machine.product.enforce(0)?;
    machine.await_nothing(&container)?;
    Ok("2 processes, reaped".to_owned())
}

pub(super) fn crash_create(machine: &Machine, container: &Container, frozen: bool) -> Result<()> {
    let freezer = machine.cgroups.freezer()?;
    let (file, value) = if freezer.unified { ("cgroup.freeze", "1") } else { ("freezer.state", "FROZEN") };
    let file = freezer.dir(&container.cgroup()).join(file);
    let hook = Hook::KillCreate { freeze: frozen.then_some((file, value)) };
    let faults = Faults { hook: Some(hook), ..Faults::default() };
    let run = machine.run(container, &faults, &SLEEP)?;
    ensure!(run.code == Some(1), "ctr run of {} should fail: {run:?}", container.id);
    Machine::settled(container)
}
