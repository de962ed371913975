//! All questions about one container.

use std::path::PathBuf;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::candidates::{Candidate, enclosing};
use super::scene::{Scene, Server, Shim, Sources};
use super::{binaries, relatives};
use crate::cgroupfs::Layout;
use crate::fact::{
    BundleFact, CgroupTree, MountFact, Ownership, ProcessFact, ProcessState, RuntimeAnswer, ShimAnswer,
    Sighting,
};
use crate::ident::{ContainerKey, Lookup, ProcessKey};
use crate::runtime::{bundle, runc, shim};
use crate::{mounts, procfs};

/// How many shims are asked at the same time about one container.
const SHIMS_AT_ONCE: usize = 8;

/// Whom it is about, and what is known of the moment.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) all: &'a [Candidate],
    pub(super) scene: &'a Scene,
    pub(super) layout: &'a Layout,
    pub(super) sources: &'a Sources,
}

/// `None` if the cgroup exists in no hierarchy.
pub(super) async fn examine(question: &Question<'_>) -> Option<Sighting> {
    let Question { candidate, all, scene, sources, .. } = *question;
    let (trees, mut unreadable) = read_trees(question);
    if trees.is_empty() && unreadable.is_empty() {
        return None;
    }
    unreadable.extend(scene.blind().cloned());
    unreadable.extend(unplaced(question));
    // Seen from inside a namespace, an empty list of members proves nothing.
    unreadable.extend(question.layout.warnings().iter().map(ToString::to_string));
    let container = &candidate.container;
    let processes = members(&trees, &mut unreadable);
    let bundle = find_bundle(sources, container);
    let inits = runtime_inits(question, &processes);
    let relatives = relatives::of(container, &processes, scene);
    unreadable.extend(relatives.lineage.unknown);
    let runtimes = ask_servers(question).await;
    Some(Sighting {
        container: container.clone(),
        provenance: candidate.provenance.clone(),
        cgroup: candidate.cgroup.clone(),
        mounts: rootfs_mounts(&bundle, scene),
        runc_state: runc_state(question, &bundle),
        shims: ask_shims(question, is_recorded(&runtimes)).await,
        runtimes,
        in_flight: relatives.in_flight,
        supervisors: relatives.lineage.supervisors,
        owners: relatives.lineage.owners,
        protected_members: relatives.protected,
        holds_self: relatives::holds_self(&trees),
        failed_create: None,
        enclosed_by: enclosing(candidate, all).map(|outer| outer.container.clone()),
        runtime_inits: inits,
        trees,
        unreadable,
        processes,
        bundle,
    })
}

/// Other bundles of the namespace of which neither they nor their records tell the cgroup: it could be this one.
fn unplaced(question: &Question<'_>) -> Vec<String> {
    let Question { candidate, all, scene, .. } = question;
    let others = scene.bundles.iter().filter(|bundle| {
        bundle.key != candidate.container
            && bundle.key.namespace == candidate.container.namespace
            && !all.iter().any(|placed| placed.container == bundle.key)
    });
    others.filter_map(|bundle| bundle.cgroup.unavailable().cloned()).collect()
}

fn read_trees(question: &Question<'_>) -> (Vec<CgroupTree>, Vec<String>) {
    let (mut trees, mut unreadable) = (vec![], vec![]);
    for mount in question.layout.hierarchies() {
        match mount.tree(&question.candidate.cgroup, &procfs::start_of) {
            Lookup::Found(tree) => trees.push(tree),
            Lookup::NotFound => {}
            Lookup::Unavailable(reason) => unreadable.push(reason),
        }
    }
    (trees, unreadable)
}

/// Each member once. One that exited meanwhile is left out; the tree still says that it was there.
fn members(trees: &[CgroupTree], unreadable: &mut Vec<String>) -> Vec<ProcessFact> {
    let mut keys: Vec<ProcessKey> = trees.iter().flat_map(CgroupTree::members).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut facts = vec![];
    for key in keys {
        match procfs::read(key.tgid) {
            Lookup::Found(fact) if fact.key == key => {
                unreadable.extend(hidden_program(&fact));
                facts.push(fact);
            }
            Lookup::Found(_) | Lookup::NotFound => {}
            Lookup::Unavailable(reason) => unreadable.push(reason),
        }
    }
    facts
}

/// Which program a member runs decides whether it may be killed: one that cannot be told is no answer. Kernel threads
/// and processes on their way out have none.
fn hidden_program(member: &ProcessFact) -> Option<String> {
    let has_none = member.kernel_thread || matches!(member.state, ProcessState::Zombie | ProcessState::Dead);
    let hidden = member.exe.is_none() && !has_none;
    hidden.then(|| format!("the program of process {} cannot be read (CAP_SYS_PTRACE?)", member.key.tgid))
}

fn runtime_inits(question: &Question<'_>, members: &[ProcessFact]) -> Vec<ProcessKey> {
    let mut known = question.scene.binaries.clone();
    for state in &question.sources.containerd_states {
        if let Lookup::Found(options) = bundle::options(state, &question.candidate.container) {
            known.extend(options.binary().into_iter().flat_map(binaries::named));
        }
    }
    for record in question.scene.records_of(&question.candidate.container) {
        let binary = record.runtime.found().and_then(|options| options.binary.as_deref());
        known.extend(binary.into_iter().flat_map(binaries::named));
    }
    members.iter().filter(|member| binaries::is_init(member, &known)).map(|member| member.key).collect()
}

pub(super) fn find_bundle(sources: &Sources, container: &ContainerKey) -> Lookup<BundleFact> {
    let mut answer = Lookup::NotFound;
    for state in &sources.containerd_states {
        match bundle::one(state, container) {
            Lookup::NotFound => {}
            found @ Lookup::Found(_) => return found,
            unavailable @ Lookup::Unavailable(_) => answer = unavailable,
        }
    }
    answer
}

/// The roots that we know, and those that the container's own options name, in its bundle or in its record.
pub(super) fn runc_state(
    question: &Question<'_>,
    bundle: &Lookup<BundleFact>,
) -> Lookup<crate::fact::RuncState> {
    let Candidate { container, .. } = question.candidate;
    let mut roots: Vec<PathBuf> = question.sources.runc_roots.clone();
    let mut told = false;
    if bundle.found().is_some() {
        for state in &question.sources.containerd_states {
            match bundle::options(state, container) {
                Lookup::Found(options) => {
                    told = true;
                    roots.extend(options.root().map(ToOwned::to_owned));
                }
                Lookup::NotFound => {}
                Lookup::Unavailable(reason) => return Lookup::Unavailable(reason),
            }
        }
    }
    for record in question.scene.records_of(container) {
        match &record.runtime {
            Lookup::Found(options) => {
                told = true;
                roots.extend(options.root.clone());
            }
            Lookup::NotFound => {}
            Lookup::Unavailable(reason) => return Lookup::Unavailable(reason.clone()),
        }
    }
    match runc::state(&roots, container, &procfs::alive) {
        Lookup::NotFound if !told && !runc::serves(&roots, &container.namespace) => Lookup::Unavailable(
            format!("no state directory of a runtime holds {}: is --runc-root right?", container.namespace),
        ),
        answer @ (Lookup::Found(_) | Lookup::NotFound | Lookup::Unavailable(_)) => answer,
    }
}

/// Mounts as the mount namespace has them that containerd makes them in.
pub(super) fn rootfs_mounts(bundle: &Lookup<BundleFact>, scene: &Scene) -> Lookup<Vec<MountFact>> {
    let Lookup::Found(bundle) = bundle else { return Lookup::Found(vec![]) };
    match scene.mount_namespace() {
        Some(process) => mounts::below(process, &bundle.path.join("rootfs"), &procfs::start_of),
        None => {
            Lookup::Unavailable("no containerd of ours tells which mount namespace to look in".to_owned())
        }
    }
}

fn is_recorded(runtimes: &[RuntimeAnswer]) -> bool {
    runtimes.iter().any(|runtime| runtime.ownership == Ownership::Ours && runtime.record.found().is_some())
}

pub(super) async fn ask_servers(question: &Question<'_>) -> Vec<RuntimeAnswer> {
    let mut answers = vec![];
    for server in &question.scene.servers {
        let answer = ask_server(server, question).await;
        if matters(server, &answer, question) {
            answers.push(answer);
        }
    }
    answers
}

async fn ask_server(server: &Server, question: &Question<'_>) -> RuntimeAnswer {
    let container = &question.candidate.container;
    match server.health() {
        Lookup::Unavailable(reason) => silent(server, &reason),
        Lookup::NotFound => not_running(server, question),
        Lookup::Found(()) => RuntimeAnswer {
            address: server.address(),
            ownership: server.client.ownership(),
            server: server.fact.clone(),
            task: server.client.task(container).await,
            record: server.client.record(container).await,
            protected: server
                .records
                .found()
                .into_iter()
                .flatten()
                .any(|record| record.key == *container && record.protected),
            overlapping: overlapping(server, question),
        },
    }
}

/// A foreign containerd that gives no answer, or none any more, matters only where it could own the container: where
/// one of its shims lives in the same namespace. (A cgroup that has processes is guarded by its ancestors besides,
/// and one without can only be removed while it is empty.)
fn matters(server: &Server, answer: &RuntimeAnswer, question: &Question<'_>) -> bool {
    let namespace = &question.candidate.container.namespace;
    let has_shim = || {
        question.scene.live_shims().any(|shim| {
            shim.namespace == namespace
                && question.scene.server_of(&shim).is_some_and(|owner| owner.address() == server.address())
        })
    };
    let denies = answer.task.is_not_found() && answer.record.is_not_found();
    let knows = answer.task.found().is_some() || answer.record.found().is_some();
    server.is_ours() || denies || knows || has_shim()
}

fn silent(server: &Server, reason: &str) -> RuntimeAnswer {
    RuntimeAnswer {
        address: server.address(),
        ownership: server.client.ownership(),
        server: server.fact.clone(),
        task: Lookup::Unavailable(reason.to_owned()),
        record: Lookup::Unavailable(reason.to_owned()),
        protected: false,
        overlapping: Lookup::Unavailable(reason.to_owned()),
    }
}

/// The tasks of a containerd are in its memory only: one that is not running has none. Its records are on disk, where
/// only it can read them: so it counts as having one. A record that names the same cgroup matters where it is a live
/// container's, which has a bundle.
fn not_running(server: &Server, question: &Question<'_>) -> RuntimeAnswer {
    let Candidate { container, cgroup, .. } = question.candidate;
    let others = question.all.iter().filter(|other| {
        other.container != *container && (other.cgroup.contains(cgroup) || cgroup.contains(&other.cgroup))
    });
    RuntimeAnswer {
        task: Lookup::NotFound,
        record: Lookup::Found(()),
        overlapping: Lookup::Found(others.map(|other| other.container.clone()).collect()),
        ..silent(server, "containerd is not running")
    }
}

fn overlapping(server: &Server, question: &Question<'_>) -> Lookup<Vec<ContainerKey>> {
    let Candidate { container, cgroup, .. } = question.candidate;
    let unknown = server.records.found().into_iter().flatten().find_map(|record| {
        let other = record.key != *container && record.key.namespace == container.namespace;
        record.cgroup.unavailable().filter(|_| other)
    });
    if let Some(reason) = unknown {
        return Lookup::Unavailable(reason.clone());
    }
    server.records.as_ref().map(|records| {
        records
            .iter()
            .filter(|record| record.key != *container)
            .filter(|record| {
                record.cgroup.found().is_some_and(|other| other.contains(cgroup) || cgroup.contains(other))
            })
            .map(|record| record.key.clone())
            .collect()
    })
}

/// The shims that may know the container: that of its group, or every shim of the namespace where no group is known,
/// and where no containerd of ours has a record. Without one, containerd's list of tasks is all there is to ask, and it
/// leaves out every task whose shim does not answer (`services/tasks/local.go:List`).
pub(super) async fn ask_shims(question: &Question<'_>, recorded: bool) -> Vec<ShimAnswer> {
    let Candidate { container, group, .. } = question.candidate;
    let group = group.as_ref().filter(|_| recorded);
    let concerns = |shim: &Shim<'_>| {
        *shim.namespace == container.namespace
            && group.is_none_or(|group| shim.id == group || *shim.id == container.id)
    };
    let sockets = sockets(question.scene);
    let asked = question.scene.live_shims().filter(concerns).map(|live| ask_shim(live, &sockets, question));
    stream::iter(asked).buffered(SHIMS_AT_ONCE).collect().await
}

async fn ask_shim(live: Shim<'_>, sockets: &[PathBuf], question: &Question<'_>) -> ShimAnswer {
    let socket = socket_of(&live);
    let task = if sockets.iter().filter(|other| **other == socket).count() > 1 {
        Lookup::Unavailable(format!("two shims serve {} at one socket", live.id))
    } else {
        shim::task(&socket, &question.candidate.container).await
    };
    ShimAnswer {
        process: live.process.key,
        containerd: live.address.to_owned(),
        ownership: question
            .scene
            .server_of(&live)
            .map_or(Ownership::Foreign, |server| server.client.ownership()),
        task,
    }
}

/// However an address is spelled, it is the socket that two shims cannot both have.
fn sockets(scene: &Scene) -> Vec<PathBuf> {
    scene.live_shims().map(|shim| socket_of(&shim)).collect()
}

fn socket_of(shim: &Shim<'_>) -> PathBuf {
    shim::socket_path(shim.address, shim.namespace, shim.id)
}
