//! What is alive is never touched, however much it looks like a leak; a real leak beside it is reaped meanwhile.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "removes a runtime's state file")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use reaper_tests::{
    Bystander, CgroupView, Cgroups, Containerd, Crash, Finished, Incarnation, Live, Mode, Node, Reaper,
    Shape, processes_naming, read_audit, run, wait_for,
};
use rustix::process::Signal;

const SOON: Duration = Duration::from_mins(1);

fn in_parallel(containerd: &Containerd, shapes: &[(&str, Shape)]) -> Result<Vec<Live>> {
    std::thread::scope(|scope| {
        let starts: Vec<_> =
            shapes.iter().map(|(label, shape)| scope.spawn(|| containerd.live(label, *shape))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    })
}

fn shim_of(containerd: &Containerd, live: &Live) -> Result<Incarnation> {
    let argv = format!(" -id {} -address ", live.id);
    wait_for("its shim", SOON, || Ok(processes_naming(&[containerd.namespace(), &argv])?.first().copied()))
}

/// Populated cgroups of the machine, with members; those of fixtures are left out.
fn populated() -> Result<BTreeMap<PathBuf, BTreeSet<u32>>> {
    let dirs = Cgroups::mounted()?.tree("/")?;
    let of_fixture =
        |dir: &Path| dir.components().any(|part| part.as_os_str().to_string_lossy().starts_with("reaper-"));
    let members = |dir: &Path| -> BTreeSet<u32> {
        let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let all = dirs.into_iter().filter(|dir| !of_fixture(dir)).map(|dir| (members(&dir), dir));
    Ok(all.filter(|(members, _)| !members.is_empty()).map(|(members, dir)| (dir, members)).collect())
}

fn assert_acted_on_only(reaper: &Reaper, leaks: &[&str]) -> Result<()> {
    let records = read_audit(&reaper.audit_log())?;
    let intents = records.iter().filter(|record| record["type"] == "reap.intent");
    let acted_on: BTreeSet<&str> =
        intents.map(|record| record["target"]["container"].as_str().unwrap()).collect();
    assert_eq!(acted_on, leaks.iter().copied().collect());
    Ok(())
}

/// Everything at once, as a shim that hangs and a create in flight make each look slow.
fn what_is_alive_is_left_alone(view: CgroupView) -> Result<()> {
    let machine = populated()?;
    assert!(!machine.is_empty());
    let containerd = Containerd::start(Node::new(view)?)?;
    let reaper = Reaper::from_env(&containerd)?;
    let bystander = Bystander::start(containerd.node())?;
    let shapes = [
        ("plain", Shape::Plain),
        ("paused", Shape::Paused),
        ("nested", Shape::Nested),
        ("unstated", Shape::Plain),
        ("hung", Shape::Several),
    ];
    let live = in_parallel(&containerd, &shapes)?;
    let leaks = [
        containerd.crash("leak", Crash::FrozenCreate)?,
        containerd.crash("orphan", Crash::OrphanedChildren)?,
    ];
    std::fs::remove_file(containerd.runc_state(&live[3].id).join("state.json"))?;
    let hung = shim_of(&containerd, &live[4])?;
    hung.signal(Signal::STOP)?;
    let flight = containerd.create_in_flight("slow", Duration::from_mins(3))?;

    let scan = reaper.scan()?;
    let leaked: Vec<&str> = leaks.iter().map(|leak| leak.id.as_str()).collect();
    assert_eq!(scan.confirmed(), leaked, "{:#}", scan.list);
    let guards = scan.of(&flight.id).map(|item| item.held_by());
    assert!(guards.is_none_or(|guards| guards.contains(&"in_flight".to_owned())), "{:#}", scan.list);
    let once = reaper.once(Mode::Enforce)?;
    hung.signal(Signal::CONT)?;
    for leak in &leaks {
        assert!(leak.is_gone()?, "the control: {leak:?} {once:?}");
    }
    assert_acted_on_only(&reaper, &leaked)?;
    assert!(flight.finish(&containerd)?.is_alive()?);
    for container in &live {
        assert!(container.still_alive(&containerd)?, "{container:?}");
    }
    assert!(bystander.incarnation().is_alive()?);
    let gone: Vec<_> = machine.into_iter().filter(|(dir, _)| !dir.exists()).collect();
    assert!(gone.is_empty(), "cgroups of the machine: {gone:?}");
    Ok(())
}

#[test]
fn what_is_alive_is_left_alone_on_cgroup_v2() -> Result<()> {
    what_is_alive_is_left_alone(CgroupView::V2)
}

#[test]
fn what_is_alive_is_left_alone_on_cgroup_v1() -> Result<()> {
    what_is_alive_is_left_alone(CgroupView::V1)
}

/// Another containerd, which the product is not told of, that works in the namespace of the first.
struct Squatter<'a> {
    containerd: Containerd,
    namespace: &'a str,
}

impl Squatter<'_> {
    fn ctr(&self, args: &[&str]) -> Result<Finished> {
        let mut command = self.containerd.node().command("ctr");
        command.arg("--address").arg(self.containerd.address()).args(["--namespace", self.namespace]);
        run(command.args(args), Duration::from_mins(1))
    }

    /// Runs a container under this id, in the cgroup that goes with it.
    fn run(&self, id: &str) -> Result<Incarnation> {
        let rootfs = self.containerd.node().dir().join("rootfs");
        let rootfs = rootfs.to_str().unwrap();
        let words = [
            "run",
            "--detach",
            "--null-io",
            "--cpu-shares",
            "0",
            "--rootfs",
            rootfs,
            id,
            "/bin/sleep",
            "100000",
        ];
        self.ctr(&words)?.expect_success("ctr run")?;
        let tasks = self.ctr(&["task", "list"])?.expect_success("list tasks")?;
        let line = tasks.lines().find(|line| line.starts_with(id)).unwrap();
        Ok(Incarnation::of(line.split_whitespace().nth(1).unwrap().parse()?)?.unwrap())
    }
}

impl Drop for Squatter<'_> {
    fn drop(&mut self) {
        // Its socket is named after a namespace that its containerd's own removal does not know.
        let tasks = self.ctr(&["task", "list", "--quiet"]).map(|tasks| tasks.stdout).unwrap_or_default();
        for id in tasks.lines() {
            let _removed_with_the_node = self.ctr(&["task", "delete", "--force", id]);
        }
    }
}

fn a_container_of_another_containerd_at_our_leaks_place_is_left_alone(view: CgroupView) -> Result<()> {
    let ours = Containerd::start(Node::new(view)?)?;
    let reaper = Reaper::from_env(&ours)?;
    let leak = ours.crash("twice", Crash::ThawedCreate)?;
    assert_eq!(reaper.scan()?.confirmed(), [leak.id.as_str()], "as long as nobody else is there");
    let squatter = Squatter { containerd: Containerd::start(Node::new(view)?)?, namespace: ours.namespace() };
    let init = squatter.run(&leak.id)?;
    assert_eq!(
        ours.node().cgroups().members(&leak.cgroup)?,
        BTreeSet::from([init]),
        "in the very same cgroup"
    );
    let scan = reaper.scan()?;
    assert_eq!(scan.confirmed(), Vec::<String>::new(), "it runs: {:#}", scan.list);
    for when in ["it runs", "its containerd gives no answer"] {
        let once = reaper.once(Mode::Enforce)?;
        assert_eq!(once.code, Some(0), "{when}: {once:?}");
        assert!(init.is_alive()?, "{when}");
        assert_eq!(leak.dirs_left(), leak.dirs, "{when}");
        assert_acted_on_only(&reaper, &[])?;
        squatter.containerd.pause()?;
    }
    squatter.containerd.resume()?;
    Ok(())
}

#[test]
fn a_container_of_another_containerd_at_our_leaks_place_is_left_alone_on_cgroup_v2() -> Result<()> {
    a_container_of_another_containerd_at_our_leaks_place_is_left_alone(CgroupView::V2)
}

#[test]
fn a_container_of_another_containerd_at_our_leaks_place_is_left_alone_on_cgroup_v1() -> Result<()> {
    a_container_of_another_containerd_at_our_leaks_place_is_left_alone(CgroupView::V1)
}
