//! Everything that is asked once a look and not once a container.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{LiveContainer, absence, binaries, candidates, claims};
use crate::fact::{
    BundleFact, ContainerRecord, FileId, Ownership, ProcessFact, RuntimeProcess, RuntimeRole, Seen,
    ServerFact, TaskStatus,
};
use crate::ident::{ContainerId, ContainerKey, Lookup, Namespace, ProcessKey, Tgid};
use crate::kernel::chain;
use crate::procfs;
use crate::runtime::containerd::{Containerd, DEADLINE};
use crate::runtime::{bundle, discover};

/// The host's table of Unix sockets; we share PID 1's PID namespace or can do nothing at all.
pub(super) const SOCKET_TABLE: &str = "/proc/1/net/unix";

/// How many foreign containerds are asked. Anybody can listen on a socket that is named like one.
const FOREIGN_LIMIT: usize = 16;
/// For all questions to one of them that are not about a single container.
const FOREIGN_DEADLINE: Duration = Duration::from_secs(1);

/// Where to look; each list has a default for the usual places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// gRPC addresses of the containerds we work for.
    pub containerd_addresses: Vec<String>,
    /// Their state directories, which hold the bundles.
    pub containerd_states: Vec<PathBuf>,
    /// State roots of runc and crun, without the namespace.
    pub runc_roots: Vec<PathBuf>,
    /// Where cgroup hierarchies are mounted.
    pub cgroup_roots: Vec<PathBuf>,
    /// Whether our containerds should be running.
    pub expected: Expected,
}

/// Whether our containerds should be running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Yes: one that does not answer leaves its questions unanswered.
    #[default]
    Running,
    /// Not yet: one that is proven not to run has no tasks, and one that runs is not asked.
    Stopped,
}

/// One containerd and what it said.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) client: Containerd,
    pub(super) fact: Lookup<ServerFact>,
    pub(super) records: Lookup<Vec<ContainerRecord>>,
    tasks: Lookup<BTreeMap<ContainerKey, TaskStatus>>,
}

/// A live shim, by its argv.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shim<'a> {
    pub(super) process: &'a ProcessFact,
    pub(super) namespace: &'a Namespace,
    pub(super) id: &'a ContainerId,
    pub(super) address: &'a str,
}

/// The processes of container runtimes, or why they are not known: then nothing can be proven.
#[derive(Debug)]
pub(super) enum Processes {
    Known {
        /// Root's, by their argv.
        claims: Vec<RuntimeProcess>,
        /// Those of them that are in no container.
        runtime: Vec<RuntimeProcess>,
    },
    Unknown(String),
}

/// One moment of the node.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) processes: Processes,
    pub(super) servers: Vec<Server>,
    pub(super) bundles: Vec<BundleFact>,
    /// The runtimes' binaries.
    pub(super) binaries: BTreeSet<FileId>,
    /// Who adopts the orphans of our containerds' shims, besides PID 1: see [`Self::ask_adopters`].
    pub(super) adopters: BTreeSet<ProcessKey>,
    /// Why the table of sockets is not known: a containerd may be hidden in it.
    pub(super) unseen_sockets: Option<String>,
    pub(super) problems: Vec<String>,
}

// === impl Server ===

impl Server {
    /// For one of ours that should not be running.
    fn stopped(address: discover::Address) -> Self {
        let fact = match absence::proven(&address.address) {
            Ok(()) => Lookup::NotFound,
            Err(why) => Lookup::Unavailable(why.to_string()),
        };
        let client = Containerd::new(address.address, address.ownership, DEADLINE);
        Self { client, fact, records: Lookup::NotFound, tasks: Lookup::NotFound }
    }

    async fn ask(address: discover::Address) -> Self {
        let client = Containerd::new(address.address.clone(), address.ownership, DEADLINE);
        let fact = client.server(procfs::start_of).await;
        if let Some(reason) = fact.unavailable() {
            // One refusal is enough: every further call would only wait again.
            return Self::silent(address, reason);
        }
        let records = client.records().await;
        if let Some(reason) = records.unavailable() {
            return Self { fact, ..Self::silent(address, reason) };
        }
        let tasks = client.tasks().await.map(|tasks| tasks.into_iter().collect());
        Self { client, fact, records, tasks }
    }

    /// Whoever is found by name could make every look last as long as it likes.
    async fn ask_briefly(address: discover::Address) -> Self {
        let asked = timeout(FOREIGN_DEADLINE, Self::ask(address.clone())).await;
        asked.unwrap_or_else(|_| {
            let reason = format!("{} was not done answering after {FOREIGN_DEADLINE:?}", address.address);
            Self::silent(address, &reason)
        })
    }

    fn silent(address: discover::Address, reason: &str) -> Self {
        let client = Containerd::new(address.address, address.ownership, DEADLINE);
        let reason = || reason.to_owned();
        let (fact, records) = (Lookup::Unavailable(reason()), Lookup::Unavailable(reason()));
        Self { client, fact, records, tasks: Lookup::Unavailable(reason()) }
    }

    pub(super) fn address(&self) -> String {
        self.client.address().to_owned()
    }

    /// Whether it answers at all; `NotFound` if it is proven not to run.
    pub(super) fn health(&self) -> Lookup<()> {
        self.fact.as_ref().map(|_| ()).and_then(|()| self.records.as_ref().map(|_| ()))
    }

    pub(super) const fn is_ours(&self) -> bool {
        matches!(self.client.ownership(), Ownership::Ours)
    }
}

// === impl Processes ===

impl Processes {
    /// Reading `/proc` takes long where there is much to read: whoever asks for metrics meanwhile is not kept waiting.
    async fn read_aside() -> Self {
        let read = tokio::task::spawn_blocking(Self::read).await;
        read.unwrap_or_else(|error| Self::Unknown(format!("reading the processes: {error}")))
    }

    fn read() -> Self {
        match procfs::all_runtime_processes() {
            Ok(claims) => Self::of(claims::of_root(claims, procfs::is_root)),
            Err(error) => Self::Unknown(chain(&error)),
        }
    }

    fn of(claims: Vec<RuntimeProcess>) -> Self {
        Self::Known { runtime: claims.clone(), claims }
    }

    /// Believes nobody who is in a container.
    fn outside(&mut self, containers: &claims::Containers) {
        if let Self::Known { runtime, .. } = self {
            runtime.retain(|claim| !containers.hold(claim.process.key.tgid));
        }
    }

    /// Those of container runtimes, as far as known.
    pub(super) fn runtime(&self) -> &[RuntimeProcess] {
        match self {
            Self::Known { runtime, .. } => runtime,
            Self::Unknown(_) => &[],
        }
    }

    /// Whether root runs it as a shim, by its argv, wherever it is: Kata's lives in its sandbox's own cgroup.
    pub(super) fn claims_shim(&self, key: ProcessKey) -> bool {
        let is_shim = |claim: &RuntimeProcess| matches!(claim.role, RuntimeRole::Shim { .. });
        match self {
            Self::Known { claims, .. } => {
                claims.iter().any(|claim| claim.process.key == key && is_shim(claim))
            }
            Self::Unknown(_) => false,
        }
    }

    pub(super) const fn unknown(&self) -> Option<&String> {
        match self {
            Self::Known { .. } => None,
            Self::Unknown(reason) => Some(reason),
        }
    }
}

/// This very program.
fn ourselves() -> Option<ProcessKey> {
    let tgid = Tgid::new(i64::from(std::process::id()))?;
    procfs::start_of(tgid).found().map(|start| ProcessKey { tgid, start: *start })
}

// === impl Scene ===

impl Scene {
    /// Processes first: a runtime command that ends during the look was in flight, one that begins is found by the
    /// second look.
    pub(super) async fn gather(sources: &Sources, remembered: &[Seen]) -> Self {
        let mut scene = Self {
            processes: Processes::read_aside().await,
            servers: vec![],
            bundles: vec![],
            binaries: BTreeSet::new(),
            adopters: BTreeSet::new(),
            unseen_sockets: None,
            problems: vec![],
        };
        let ours = discover::ours(&sources.containerd_addresses).into_iter();
        scene.servers = match sources.expected {
            Expected::Running => join_all(ours.map(Server::ask)).await,
            Expected::Stopped => ours.map(Server::stopped).collect(),
        };
        scene.list_bundles(sources);
        let containers = claims::Containers::of(&candidates::all(&scene, remembered), &scene.servers);
        scene.processes.outside(&containers);
        scene.binaries = binaries::installed(&scene.live_shims().collect::<Vec<_>>());
        scene.ask_foreign(sources).await;
        scene.ask_adopters();
        scene
    }

    async fn ask_foreign(&mut self, sources: &Sources) {
        let of_shims: Vec<String> = self.live_shims().map(|shim| shim.address.to_owned()).collect();
        match discover::addresses(&sources.containerd_addresses, &of_shims, Path::new(SOCKET_TABLE)) {
            Lookup::Found(mut addresses) => {
                addresses.retain(|address| address.ownership == Ownership::Foreign);
                let unasked = addresses.split_off(addresses.len().min(FOREIGN_LIMIT));
                self.servers.extend(join_all(addresses.into_iter().map(Server::ask_briefly)).await);
                self.servers.extend(unasked.into_iter().map(|address| {
                    let reason = format!(
                        "{} was not asked: more than {FOREIGN_LIMIT} foreign sockets",
                        address.address
                    );
                    Server::silent(address, &reason)
                }));
            }
            Lookup::NotFound => self.unseen_sockets = Some(format!("{SOCKET_TABLE} does not exist")),
            Lookup::Unavailable(reason) => self.unseen_sockets = Some(reason),
        }
        let down = self.servers.iter().filter_map(|server| server.health().unavailable().cloned());
        self.problems.extend(down);
        let blind: Vec<String> = self.blind().cloned().collect();
        self.problems.extend(blind);
    }

    /// Why this moment proves nothing.
    pub(super) fn blind(&self) -> impl Iterator<Item = &String> {
        self.processes.unknown().into_iter().chain(&self.unseen_sockets)
    }

    /// A process whose parent dies goes to the nearest ancestor that asked for orphans (`PR_SET_CHILD_SUBREAPER`), else
    /// to PID 1 (`kernel/exit.c:find_new_reaper`). A shim detaches from the containerd that starts it, so that whoever
    /// adopts it, and its containers once it dies, is above that containerd.
    fn ask_adopters(&mut self) {
        for server in self.servers.iter().filter(|server| server.is_ours()) {
            let Some(fact) = server.fact.found() else { continue };
            let above = procfs::read(fact.process.tgid)
                .and_then(|server| procfs::ancestors(&[server], &procfs::read));
            match above {
                Lookup::Found(above) => self.adopters.extend(above.iter().map(|process| process.key)),
                Lookup::NotFound => {}
                // Fewer of them only means to hold more back.
                Lookup::Unavailable(reason) => self.problems.push(reason),
            }
        }
    }

    fn list_bundles(&mut self, sources: &Sources) {
        for state in &sources.containerd_states {
            match bundle::list(state) {
                Lookup::Found(found) => {
                    self.bundles.extend(found.bundles);
                    self.problems.extend(found.problems);
                }
                Lookup::NotFound => {}
                Lookup::Unavailable(reason) => self.problems.push(reason),
            }
        }
    }

    pub(super) fn live_shims(&self) -> impl Iterator<Item = Shim<'_>> {
        self.processes.runtime().iter().filter_map(|process| match &process.role {
            RuntimeRole::Shim { namespace, id, address } => {
                Some(Shim { process: &process.process, namespace, id, address })
            }
            RuntimeRole::Command { .. } => None,
        })
    }

    /// What our containerds have on record of a container.
    pub(super) fn records_of(&self, container: &ContainerKey) -> impl Iterator<Item = &ContainerRecord> {
        let ours = self.servers.iter().filter(|server| server.is_ours());
        let records = ours.filter_map(|server| server.records.found()).flatten();
        records.filter(move |record| record.key == *container)
    }

    /// A process in the mount namespace in which containerd has its mounts. Where it is proven not to run, that is ours:
    /// who comes before a service of the host has to run as one.
    pub(super) fn mount_namespace(&self) -> Option<ProcessKey> {
        let ours = || self.servers.iter().filter(|server| server.is_ours());
        let running = ours().find_map(|server| server.fact.found()).map(|server| server.process);
        let stopped = || ours().any(|server| server.fact.is_not_found());
        running.or_else(|| stopped().then(ourselves).flatten())
    }

    /// The containerd that a shim was started by, if it was found.
    pub(super) fn server_of(&self, shim: &Shim<'_>) -> Option<&Server> {
        self.servers.iter().find(|server| discover::same_socket(server.client.address(), shim.address))
    }

    /// Every task that any containerd lists.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &ContainerKey> {
        self.servers.iter().filter_map(|server| server.tasks.found()).flat_map(BTreeMap::keys)
    }

    /// A task that one of our containerds, or a foreign one, lists under this name.
    pub(super) fn listed_task(&self, container: &ContainerKey) -> Option<LiveContainer> {
        self.servers.iter().find_map(|server| {
            let status = *server.tasks.found()?.get(container)?;
            let (container, address) = (container.clone(), server.address());
            // UNKNOWN is what a create in flight and a hung shim look like: those are examined.
            (status != TaskStatus::Unknown).then_some(LiveContainer { container, status, address })
        })
    }
}
