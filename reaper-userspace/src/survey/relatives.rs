//! Which processes stand in a relation to a container: commands about it, ancestors of its members, and members
//! that must not be killed.

use std::collections::BTreeSet;

use super::scene::{Processes, Scene};
use crate::fact::{CgroupTree, ProcessFact, RuntimeProcess, RuntimeRole};
use crate::ident::{ContainerKey, Lookup, ProcessKey, Tgid};
use crate::procfs;

/// Programs of which none must ever be killed, by the name of their executable.
const NEVER: [&str; 3] = ["kubelet", "dockerd", "containerd"];

#[derive(Debug)]
pub(super) struct Relatives {
    pub(super) in_flight: Vec<RuntimeProcess>,
    pub(super) supervisors: Vec<RuntimeProcess>,
    pub(super) protected: Vec<ProcessFact>,
}

pub(super) fn of(container: &ContainerKey, members: &[ProcessFact], scene: &Scene) -> Relatives {
    let inside: BTreeSet<ProcessKey> = members.iter().map(|member| member.key).collect();
    let outside = |process: &&RuntimeProcess| !inside.contains(&process.process.key);
    let is_command = |process: &&RuntimeProcess| matches!(process.role, RuntimeRole::Command { .. });
    Relatives {
        in_flight: scene
            .processes
            .runtime()
            .iter()
            .filter(outside)
            .filter(is_command)
            .filter(|process| process.names(&container.id))
            .cloned()
            .collect(),
        supervisors: supervisors(members, &scene.processes)
            .into_iter()
            .filter(|s| !inside.contains(&s.process.key))
            .collect(),
        protected: members.iter().filter(|member| must_live(member, scene)).cloned().collect(),
    }
}

/// Shims and commands among the ancestors, however far up.
fn supervisors(members: &[ProcessFact], processes: &Processes) -> Vec<RuntimeProcess> {
    let mut found: Vec<RuntimeProcess> = vec![];
    for member in members {
        let Some(parent) = member.parent else { continue };
        let ancestors = processes.ancestors(parent);
        let lineage = std::iter::once(parent).chain(ancestors.iter().map(|process| process.key.tgid));
        for tgid in lineage {
            let known = processes.runtime().iter().find(|process| process.process.key.tgid == tgid);
            if let Some(process) = known
                && !found.contains(process)
            {
                found.push(process.clone());
            }
        }
    }
    found
}

fn must_live(member: &ProcessFact, scene: &Scene) -> bool {
    let program = member.exe.as_ref().and_then(|exe| exe.file_name()).map(|name| name.to_string_lossy());
    let serves =
        |key| scene.servers.iter().any(|server| server.fact.found().is_some_and(|s| s.process == key));
    let is_shim =
        scene.processes.runtime().iter().any(|process| {
            process.process.key == member.key && matches!(process.role, RuntimeRole::Shim { .. })
        });
    member.key.tgid == Tgid::INIT
        || member.key.tgid.get() == std::process::id()
        || member.kernel_thread
        || serves(member.key)
        || is_shim
        || program.is_some_and(|name| NEVER.contains(&name.as_ref()) || name.starts_with("containerd-shim"))
}

/// Whether this very program runs in one of the trees.
pub(super) fn holds_self(trees: &[CgroupTree]) -> Lookup<bool> {
    let Some(own) = Tgid::new(i64::from(std::process::id())) else {
        return Lookup::Unavailable("our own process number is out of range".to_owned());
    };
    for root in trees.iter().filter_map(CgroupTree::root) {
        match procfs::cgroup_of(own, root.cgroup.hierarchy) {
            Lookup::Found(path) if root.path.contains(&path) => return Lookup::Found(true),
            Lookup::Found(_) | Lookup::NotFound => {}
            Lookup::Unavailable(reason) => return Lookup::Unavailable(reason),
        }
    }
    Lookup::Found(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::sample;

    fn process(tgid: i64, parent: i64, argv: &[&str]) -> ProcessFact {
        ProcessFact {
            key: sample::key(tgid, 1),
            parent: Tgid::new(parent),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            ..sample::workload()
        }
    }

    fn supervisors_of(member: &ProcessFact, others: &[ProcessFact]) -> Vec<u32> {
        let processes = Processes::of(others.iter().chain([member]).cloned().collect());
        let found = supervisors(std::slice::from_ref(member), &processes);
        found.iter().map(|process| process.process.key.tgid.get()).collect()
    }

    #[test]
    fn a_shim_or_command_owns_its_descendants_however_far_down() {
        let shim = process(
            20,
            1,
            &[
                "/usr/bin/containerd-shim-runc-v2",
                "-namespace",
                "k8s.io",
                "-id",
                "x",
                "-address",
                "/run/c.sock",
            ],
        );
        let create = process(30, 20, &["runc", "--root", "/r", "create", "--bundle", "/b", "x"]);
        let shell = process(40, 30, &["sh", "-c", "sleep 9"]);
        let member = process(50, 40, &["sleep", "9"]);
        assert_eq!(supervisors_of(&member, &[shim.clone(), create, shell]), [30, 20]);
        assert_eq!(supervisors_of(&process(60, 20, &["sleep", "9"]), &[shim]), [20]);
    }

    #[test]
    fn an_orphan_has_no_supervisor() {
        let init = process(1, 0, &["/sbin/init"]);
        assert_eq!(supervisors_of(&process(50, 1, &["sleep", "9"]), &[init]), Vec::<u32>::new());
    }
}
