//! What lives is left alone.

use anyhow::{Result, ensure};

use super::Shown;
use super::machine::{Container, Machine};
use super::tools::{Product, Unit};
use crate::process::Incarnation;
use crate::runc::Faults;

const SLEEP: [&str; 2] = ["sleep", "100000"];
const SEVERAL: [&str; 3] = ["sh", "-c", "sleep 100000 & sleep 100000 & wait"];

/// A container that runs, several processes in one, a paused one, and one whose processes moved to a cgroup below
/// their scope, as a service manager in a container does: all as before after an enforced sweep.
pub(super) fn left_alone(machine: &Machine) -> Shown {
    let [plain, several, paused, nested] =
        ["plain", "several", "paused", "nested"].map(|label| machine.name(label));
    let start = |container: &Container, args: &[&str]| machine.start(container, &Faults::default(), args);
    let inits = [
        start(&plain, &SLEEP)?,
        start(&several, &SEVERAL)?,
        start(&paused, &SLEEP)?,
        start(&nested, &SLEEP)?,
    ];
    machine.await_members(&several, 3)?;
    Machine::must_ctr(&["task", "pause", &paused.id])?;
    let below = machine.cgroups.only(|one| one.dir(&nested.cgroup()).is_dir());
    below.enter(&format!("{}/init", nested.cgroup()), &machine.cgroups.members(&nested.cgroup())?)?;
    let all = [plain, several, paused, nested];
    machine.product.enforce(0)?;
    for (container, init) in all.iter().zip(&inits) {
        as_before(machine, container, init)?;
        ensure!(Product::item(&container.id)?.is_none(), "scan shows {}", container.id);
    }
    all.iter().try_for_each(Machine::end)?;
    Ok("4 containers as before".to_owned())
}

fn as_before(machine: &Machine, container: &Container, init: &Incarnation) -> Result<()> {
    let Container { id, .. } = container;
    ensure!(init.is_alive()?, "the init of {id} is dead");
    ensure!(Machine::task(id)?.is_some_and(|(pid, _)| pid == init.pid), "{id} is no task any more");
    ensure!(machine.cgroups.members(&container.cgroup())?.contains(init), "{id} left its cgroup");
    ensure!(Unit::of(&container.scope())?.is_active(), "{} is not active", container.scope());
    Ok(())
}
