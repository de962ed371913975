//! Sightings for tests: each builder starts from a proven half-created leak and spoils one thing.

use std::path::PathBuf;

use super::{
    ActiveState, BundleFact, BundleSighting, CgroupNode, CgroupTree, Controllers, CreateProgress,
    EndedCommand, FileId, Freeze, Invocation, MisplacedSighting, MountFact, Ownership, Placement, ProcessEnd,
    ProcessFact, ProcessState, Provenance, RuncState, RuntimeAnswer, RuntimeProcess, RuntimeRole, ServerFact,
    ShimAnswer, Sighting, TaskStatus, UnitFact, UnitSighting,
};
use crate::ident::{
    CgroupId, CgroupPath, CgroupRef, ContainerId, ContainerKey, Hierarchy, InvocationId, Lookup, Namespace,
    ProcessKey, StartTicks, Tgid, UnitName,
};
use crate::time::BootTime;

pub(crate) const ADDRESS: &str = "/run/containerd/containerd.sock";

pub(crate) fn key(tgid: i64, start: u64) -> ProcessKey {
    ProcessKey { tgid: Tgid::new(tgid).unwrap(), start: StartTicks::from_ticks(start) }
}

pub(crate) fn container() -> ContainerKey {
    ContainerKey {
        namespace: Namespace::try_from("k8s.io").unwrap(),
        id: ContainerId::try_from("3f0c9a1be2d4").unwrap(),
    }
}

pub(crate) fn init() -> ProcessFact {
    ProcessFact {
        key: key(91_240, 81_000),
        parent: Some(Tgid::INIT),
        comm: "runc:[2:INIT]".to_owned(),
        state: ProcessState::Sleeping,
        exe: Some(PathBuf::from("/usr/sbin/runc")),
        argv: vec!["runc".to_owned(), "init".to_owned()],
        kernel_thread: false,
    }
}

pub(crate) fn workload() -> ProcessFact {
    ProcessFact {
        key: key(91_300, 81_100),
        comm: "sleep".to_owned(),
        exe: Some(PathBuf::from("/bin/sleep")),
        argv: vec!["sleep".to_owned(), "9".to_owned()],
        ..init()
    }
}

pub(crate) fn command(verb: &str) -> RuntimeProcess {
    let process = ProcessFact { key: key(400, 9), comm: "runc".to_owned(), ..init() };
    RuntimeProcess { process, role: RuntimeRole::Command { verb: verb.to_owned() } }
}

pub(crate) fn shim() -> RuntimeProcess {
    let process = ProcessFact { key: key(300, 8), comm: "containerd-shim".to_owned(), ..init() };
    let ContainerKey { namespace, id } = container();
    RuntimeProcess { process, role: RuntimeRole::Shim { namespace, id, address: ADDRESS.to_owned() } }
}

pub(crate) fn shim_answer(task: Lookup<TaskStatus>) -> ShimAnswer {
    ShimAnswer {
        process: shim().process.key,
        containerd: ADDRESS.to_owned(),
        ownership: Ownership::Ours,
        task,
    }
}

pub(crate) fn path() -> CgroupPath {
    CgroupPath::try_from("/kubepods.slice/cri-containerd-3f0c9a1be2d4.scope").unwrap()
}

pub(crate) fn tree(controllers: Controllers, id: u64, members: &[ProcessFact]) -> CgroupTree {
    let hierarchy = Hierarchy(match controllers {
        Controllers::Unified => 0,
        Controllers::Freezer => 6,
        Controllers::Other => 8,
    });
    let node = CgroupNode {
        cgroup: CgroupRef { hierarchy, id: CgroupId(id) },
        path: path(),
        members: Lookup::Found(members.iter().map(|member| member.key).collect()),
        freeze: Lookup::Found(if members.is_empty() { Freeze::Thawed } else { Freeze::Frozen }),
    };
    CgroupTree {
        controllers,
        hierarchy_name: String::new(),
        nodes: vec![node],
        populated: Lookup::Found(!members.is_empty()),
    }
}

pub(crate) fn answer() -> RuntimeAnswer {
    RuntimeAnswer {
        address: ADDRESS.to_owned(),
        ownership: Ownership::Ours,
        server: Lookup::Found(ServerFact { process: key(200, 7) }),
        task: Lookup::NotFound,
        record: Lookup::Found(()),
        protected: false,
        overlapping: Lookup::Found(vec![]),
    }
}

pub(crate) fn bundle() -> BundleFact {
    BundleFact {
        key: container(),
        path: PathBuf::from("/run/containerd/io.containerd.runtime.v2.task/k8s.io/3f0c9a1be2d4"),
        cgroup: Lookup::Found(path()),
        group: Lookup::Found(container().id),
        protected: false,
        progress: Lookup::Found(CreateProgress::Started),
        init_pid: Lookup::NotFound,
    }
}

/// A frozen half-created init in v2, with its bundle and record, that nothing speaks for.
pub(crate) fn half_created() -> Sighting {
    Sighting {
        container: container(),
        provenance: Provenance::Bundle { path: bundle().path },
        cgroup: path(),
        trees: vec![tree(Controllers::Unified, 48_213, &[init()])],
        unreadable: vec![],
        processes: vec![init()],
        runtime_inits: vec![init().key],
        bundle: Lookup::Found(bundle()),
        runc_state: Lookup::NotFound,
        runtimes: vec![answer()],
        shims: vec![],
        in_flight: vec![],
        supervisors: vec![],
        owners: vec![],
        protected_members: vec![],
        holds_self: Lookup::Found(false),
        enclosed_by: None,
        mounts: Lookup::Found(vec![]),
        failed_create: None,
    }
}

/// Processes whose init is dead and whose delete did not finish.
pub(crate) fn orphaned() -> Sighting {
    let state = RuncState {
        path: PathBuf::from("/run/containerd/runc/k8s.io/3f0c9a1be2d4/state.json"),
        init: Some(key(91_240, 81_000)),
        init_alive: Lookup::Found(false),
    };
    Sighting {
        trees: vec![tree(Controllers::Unified, 48_213, &[workload()])],
        processes: vec![workload()],
        bundle: Lookup::NotFound,
        provenance: Provenance::Record { address: ADDRESS.to_owned() },
        runc_state: Lookup::Found(state),
        ..half_created()
    }
}

/// Directories without a process in three hierarchies.
pub(crate) fn empty() -> Sighting {
    let trees = [Controllers::Unified, Controllers::Freezer, Controllers::Other];
    Sighting {
        trees: trees.iter().zip(1..).map(|(kind, id)| tree(*kind, id, &[])).collect(),
        processes: vec![],
        ..half_created()
    }
}

/// What the probes saw of a `runc create` that ended like this.
pub(crate) fn ended_create(end: ProcessEnd) -> EndedCommand {
    let ContainerKey { namespace, id } = container();
    EndedCommand {
        process: command("create").process.key,
        invocation: Some(Invocation { verb: "create".to_owned(), namespace: Some(namespace), id }),
        shim: Some(shim().process.key),
        began: BootTime::from_nanos(1_000_000_000),
        ended: BootTime::from_nanos(1_250_000_000),
        end,
    }
}

pub(crate) fn mount(id: u32, below: &str) -> MountFact {
    MountFact {
        mount_id: id,
        unique_id: Some(u64::from(id) + 1_000),
        target: bundle().path.join(below),
        namespace_of: key(200, 7),
    }
}

/// A bundle with two mounts, of which nothing else is left.
pub(crate) fn dead_bundle() -> BundleSighting {
    BundleSighting {
        bundle: bundle(),
        directory: Lookup::Found(FileId { device: 30, inode: 1_234 }),
        mounts: Lookup::Found(vec![mount(77, "rootfs"), mount(78, "rootfs/data")]),
        unreadable: vec![],
        runc_state: Lookup::NotFound,
        runtimes: vec![answer()],
        shims: vec![],
        listener: Lookup::NotFound,
        in_flight: vec![],
    }
}

/// A scope that ran into its time limit, of a container that nobody has any more.
pub(crate) fn failed_unit() -> UnitSighting {
    let unit = UnitFact {
        name: UnitName::try_from("cri-containerd-3f0c9a1be2d4.scope".to_owned()).unwrap(),
        container: container().id,
        state: ActiveState::Failed,
        result: "timeout".to_owned(),
        invocation: InvocationId::from_bytes(&[7; 16]).unwrap(),
        cgroup: Some(path()),
        has_job: false,
    };
    UnitSighting {
        unit,
        container: container(),
        populated: Lookup::Found(false),
        unreadable: vec![],
        runtimes: vec![answer()],
        shims: vec![],
        namesakes: vec![],
        in_flight: vec![],
    }
}

/// A container in containerd's own cgroup.
pub(crate) fn misplaced() -> MisplacedSighting {
    let service = CgroupPath::try_from("/system.slice/containerd.service").unwrap();
    MisplacedSighting {
        container: container(),
        bundle: bundle().path,
        named: path(),
        init: key(91_240, 81_000),
        placements: vec![Placement { hierarchy: "v2".to_owned(), path: service, own: false }],
    }
}
