//! A cgroup made by hand that looks leaked, proven with the product's own verdict: what an act needs before it begins.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use reaper_userspace::audit::{Answer, Before, IntentBody, Node, Target, Tool, Trigger};
use reaper_userspace::cgroupfs::Layout;
use reaper_userspace::daemon::clock;
use reaper_userspace::fact::{
    CgroupTree, Freeze, MountFact, Ownership, ProcessFact, Provenance, RuncState, RuntimeAnswer, ServerFact,
    Sighting,
};
use reaper_userspace::ident::{
    CgroupPath, ContainerId, ContainerKey, Lookup, Namespace, ProcessKey, StartTicks, Tgid,
};
use reaper_userspace::inventory::History;
use reaper_userspace::policy::{Mode, Policy};
use reaper_userspace::procfs;
use reaper_userspace::time::BootTime;
use reaper_userspace::verdict::{Freshness, LeakProof, Verdict, assess, conclude};

pub(crate) const BOOT: &str = "boot";

/// What is on the node, and what is said about it: a container that nobody knows and whose init is dead.
pub(crate) struct ByHand<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) cgroup: CgroupPath,
    pub(crate) mounts: Vec<MountFact>,
    /// The containerd behind the socket; another number is another incarnation.
    pub(crate) server: ProcessKey,
}

/// PID 1 stands for a containerd that has been there for ever.
pub(crate) fn server() -> ProcessKey {
    ProcessKey { tgid: Tgid::INIT, start: StartTicks::from_ticks(1) }
}

pub(crate) fn node() -> Node {
    Node { boot: BOOT.to_owned(), name: "node".to_owned() }
}

pub(crate) fn intent_body(proof: &LeakProof) -> IntentBody {
    let sighting = proof.sighting();
    let mut nodes = sighting.trees.iter().flat_map(|tree| &tree.nodes);
    let frozen = nodes.any(|node| matches!(node.freeze, Lookup::Found(Freeze::Frozen | Freeze::Freezing)));
    IntentBody {
        tool: Tool { version: String::new(), config: String::new(), mode: String::new() },
        trigger: Trigger::daemon(proof.cause()),
        target: Target {
            kind: proof.kind(),
            cgroup_ids: proof.roots().collect(),
            path: sighting.cgroup.to_string(),
            container: sighting.container.id.clone(),
            runtime_ns: sighting.container.namespace.clone(),
        },
        evidence: vec![],
        evidence_omitted: 0,
        before: Before::new(Answer::Yes, if frozen { Answer::Yes } else { Answer::No }, &[]),
    }
}

// === impl ByHand ===

impl ByHand<'_> {
    /// The product's own verdict on what is there, with a grace of nothing; why it is none, if so.
    pub(crate) fn prove(&self) -> Result<LeakProof, String> {
        let sighting = self.sighting()?;
        let policy = Policy { mode: Mode::Enforce, grace: Duration::ZERO, ..Policy::default() };
        let assessment = assess(&sighting, &policy, &Freshness::Fresh);
        let long_ago = BootTime::from_nanos(1);
        let history = History { first_seen: long_ago, clean_since: Some(long_ago), looks: 2 };
        match conclude(&sighting, assessment, &history, &policy, clock::boot()) {
            Verdict::Leaked(proof) => Ok(*proof),
            Verdict::Live(owner) => Err(format!("live: {owner}")),
            Verdict::Held { vetoes, .. } => {
                let guard = vetoes.first().map_or("no guard", |veto| veto.guard.as_str());
                Err(format!("held by {guard}: {vetoes:?}"))
            }
        }
    }

    fn sighting(&self) -> Result<Sighting, String> {
        let trees = self.trees()?;
        let members: BTreeSet<ProcessKey> = trees.iter().flat_map(CgroupTree::members).collect();
        let address = "/none/containerd.sock".to_owned();
        let runtime = RuntimeAnswer {
            address: address.clone(),
            ownership: Ownership::Ours,
            server: Lookup::Found(ServerFact { process: self.server }),
            task: Lookup::NotFound,
            record: Lookup::Found(()),
            protected: false,
            overlapping: Lookup::Found(vec![]),
        };
        let dead =
            ProcessKey { tgid: Tgid::new(1 << 22).unwrap_or(Tgid::INIT), start: StartTicks::from_ticks(1) };
        let state =
            RuncState { path: PathBuf::from("/none"), init: Some(dead), init_alive: Lookup::Found(false) };
        let namespace = Namespace::try_from("by-hand").map_err(|error| error.to_string())?;
        let id = ContainerId::try_from("leak").map_err(|error| error.to_string())?;
        Ok(Sighting {
            container: ContainerKey { namespace, id },
            provenance: Provenance::Record { address },
            cgroup: self.cgroup.clone(),
            processes: members.into_iter().filter_map(|key| found(procfs::read(key.tgid))).collect(),
            trees,
            unreadable: vec![],
            bundle: Lookup::NotFound,
            runc_state: Lookup::Found(state),
            runtimes: vec![runtime],
            shims: vec![],
            in_flight: vec![],
            supervisors: vec![],
            owners: vec![],
            failed_create: None,
            runtime_inits: vec![],
            protected_members: vec![],
            holds_self: Lookup::Found(false),
            enclosed_by: None,
            mounts: Lookup::Found(self.mounts.clone()),
        })
    }

    fn trees(&self) -> Result<Vec<CgroupTree>, String> {
        let mut trees = vec![];
        for mount in self.layout.hierarchies() {
            match mount.tree(&self.cgroup, &procfs::start_of) {
                Lookup::Found(tree) => trees.push(tree),
                Lookup::NotFound => {}
                Lookup::Unavailable(reason) => return Err(format!("held by source_unavailable: {reason}")),
            }
        }
        if trees.is_empty() { Err("gone: nothing is left".to_owned()) } else { Ok(trees) }
    }
}

fn found(process: Lookup<ProcessFact>) -> Option<ProcessFact> {
    match process {
        Lookup::Found(process) => Some(process),
        Lookup::NotFound | Lookup::Unavailable(_) => None,
    }
}
