//! Which processes stand in a relation to a container: commands about it, ancestors of its members, and members
//! that must not be killed.

use std::collections::BTreeSet;
use std::path::Path;

use super::scene::Scene;
use crate::fact::{CgroupTree, ProcessFact, RuntimeProcess, RuntimeRole};
use crate::ident::{ContainerKey, Lookup, ProcessKey, Tgid};
use crate::procfs;

/// Programs of which none must ever be killed, by the name of their executable.
const NEVER: [&str; 7] = ["kubelet", "dockerd", "containerd", "k3s", "rke2", "k0s", "kubelite"];

#[derive(Debug)]
pub(super) struct Relatives {
    pub(super) in_flight: Vec<RuntimeProcess>,
    pub(super) lineage: Lineage,
    pub(super) protected: Vec<ProcessFact>,
}

/// The living ancestors of the members, outside of the tree.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    pub(super) supervisors: Vec<RuntimeProcess>,
    pub(super) owners: Vec<ProcessFact>,
    /// Why they are not known.
    pub(super) unknown: Option<String>,
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
        lineage: lineage(members, &scene.adopters, &procfs::read),
        protected: members.iter().filter(|member| must_live(member, scene)).cloned().collect(),
    }
}

/// Shims and commands among the ancestors, however far up, and those that nothing explains.
fn lineage(members: &[ProcessFact], adopters: &BTreeSet<ProcessKey>, read: procfs::Read<'_>) -> Lineage {
    let above = match procfs::ancestors(members, read) {
        Lookup::Found(above) => above,
        Lookup::NotFound => vec![],
        Lookup::Unavailable(reason) => return Lineage { unknown: Some(reason), ..Lineage::default() },
    };
    let supervisors = procfs::runtime_processes(&above);
    let explained = |process: &ProcessFact| {
        process.key.tgid == Tgid::INIT
            || adopters.contains(&process.key)
            || supervisors.iter().any(|supervisor| supervisor.process.key == process.key)
    };
    let owners = above.iter().filter(|process| !explained(process)).cloned().collect();
    Lineage { supervisors, owners, unknown: None }
}

fn must_live(member: &ProcessFact, scene: &Scene) -> bool {
    let serves =
        |key| scene.servers.iter().any(|server| server.fact.found().is_some_and(|s| s.process == key));
    member.key.tgid == Tgid::INIT
        || member.key.tgid.get() == std::process::id()
        || member.kernel_thread
        || serves(member.key)
        || scene.processes.claims_shim(member.key)
        || member.exe.as_deref().is_some_and(is_never)
}

/// An upgrade replaces the file of a program that runs on: the kernel then adds a word to its name.
fn is_never(exe: &Path) -> bool {
    let name = exe.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    NEVER.contains(&name) || name.starts_with("containerd-shim")
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

    fn process(tgid: i64, parent: i64, command_line: &str) -> ProcessFact {
        ProcessFact {
            key: sample::key(tgid, 1),
            parent: Tgid::new(parent),
            argv: command_line.split(' ').map(str::to_owned).collect(),
            ..sample::workload()
        }
    }

    fn init() -> ProcessFact {
        process(1, 0, "/sbin/init")
    }

    /// Numbers of the supervisors, and of the owners.
    fn above(member: &ProcessFact, others: &[ProcessFact], adopters: &[i64]) -> (Vec<u32>, Vec<u32>) {
        let read = |tgid: Tgid| {
            let found = others.iter().find(|process| process.key.tgid == tgid);
            found.map_or(Lookup::NotFound, |process| Lookup::Found(process.clone()))
        };
        let adopters = adopters.iter().map(|tgid| sample::key(*tgid, 1)).collect();
        let lineage = lineage(std::slice::from_ref(member), &adopters, &read);
        assert_eq!(lineage.unknown, None);
        let number = |process: &ProcessFact| process.key.tgid.get();
        let supervisors = lineage.supervisors.iter().map(|supervisor| number(&supervisor.process));
        (supervisors.collect(), lineage.owners.iter().map(number).collect())
    }

    #[test]
    fn a_shim_or_command_owns_its_descendants_however_far_down() {
        let shim =
            process(20, 1, "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id x -address /run/c.sock");
        let create = process(30, 20, "runc --root /r create --bundle /b x");
        let shell = process(40, 30, "sh -c sleep");
        let member = process(50, 40, "sleep 9");
        assert_eq!(above(&member, &[init(), shim.clone(), create, shell], &[]), (vec![20, 30], vec![40]));
        assert_eq!(above(&process(60, 20, "sleep 9"), &[init(), shim], &[]), (vec![20], vec![]));
    }

    #[test]
    fn whoever_is_above_a_member_owns_it_whatever_its_program_is_called() {
        let runtime = process(20, 1, "/opt/my-runtime --serve");
        assert_eq!(above(&process(50, 20, "sleep 9"), &[init(), runtime], &[]), (vec![], vec![20]));
    }

    #[test]
    fn an_orphan_of_process_1_or_of_an_adopter_has_no_owner() {
        let service_manager = process(7, 1, "/usr/lib/systemd/systemd --user");
        assert_eq!(above(&process(50, 1, "sleep 9"), &[init()], &[]), (vec![], vec![]));
        let adopted = process(50, 7, "sleep 9");
        assert_eq!(above(&adopted, &[init(), service_manager.clone()], &[1, 7]), (vec![], vec![]));
        assert_eq!(above(&adopted, &[init(), service_manager], &[]), (vec![], vec![7]));
    }

    #[test]
    fn a_node_agent_is_known_by_its_file_even_after_an_upgrade() {
        for exe in [
            "/usr/bin/kubelet",
            "/usr/bin/containerd (deleted)",
            "/x/k3s",
            "/snap/kubelite",
            "/x/containerd-shim-y",
        ] {
            assert!(is_never(Path::new(exe)), "{exe}");
        }
        for exe in ["/usr/bin/sleep", "/kubelet/x", "/"] {
            assert!(!is_never(Path::new(exe)), "{exe}");
        }
    }

    #[test]
    fn ancestors_that_cannot_be_read_are_unknown() {
        let read = |_: Tgid| Lookup::Unavailable("EIO".to_owned());
        let lineage = lineage(&[process(50, 20, "sleep 9")], &BTreeSet::new(), &read);
        assert_eq!(lineage.unknown.as_deref(), Some("EIO"));
    }
}
