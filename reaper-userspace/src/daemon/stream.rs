//! Kernel events as they come, with the container and the path that they concern. For people and programs that watch.
//!
//! Whose an event is, is found out after it happened: what is gone by then has no name, and stays a number.

use std::collections::BTreeMap;

use super::clock;
use super::engine::Engine;
use super::follow::follow;
use super::hints::{Hints, Wanted};
use super::listen::Heard;
use super::service::wanted;
use crate::cgroupfs::CgroupDir;
use crate::event::{Event, Occurrence};
use crate::fact::Invocation;
use crate::ident::{CgroupId, CgroupPath, CgroupRef, ContainerKey, ProcessKey, Tgid};
use crate::lineage::{Lineage, Notice};
use crate::probe::Losses;
use crate::procfs;
use crate::verdict::Freshness;

/// An event and what is known about it.
#[derive(Clone, Debug)]
pub struct Told {
    /// The event.
    pub event: Event,
    /// What it meant beyond itself.
    pub notice: Option<Notice>,
    /// The container it concerns.
    pub container: Option<ContainerKey>,
    /// The path of its cgroup.
    pub path: Option<CgroupPath>,
    /// The shim that made the process.
    pub shim: Option<ProcessKey>,
}

/// Events, attached from the start on.
#[derive(Debug)]
pub struct Stream {
    engine: Engine,
    hints: Hints,
    lineage: Lineage,
    paths: BTreeMap<CgroupRef, CgroupPath>,
    containers: BTreeMap<CgroupPath, ContainerKey>,
    members: BTreeMap<Tgid, ContainerKey>,
}

// === impl Stream ===

impl Stream {
    /// Attaches, then looks: what happens in between is not missed.
    ///
    /// # Errors
    /// Why there are no events on this node.
    pub async fn start(engine: Engine, probes: Wanted) -> anyhow::Result<Self> {
        let hints = Hints::start(probes)?;
        anyhow::ensure!(
            hints.is_live(),
            "there are no kernel events without probes, see `cgroup-reaper doctor`"
        );
        let (paths, containers, members) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut stream = Self { engine, hints, lineage: Lineage::default(), paths, containers, members };
        stream.look().await;
        Ok(stream)
    }

    /// Looks for containers that are new.
    pub async fn look(&mut self) {
        let round = self.engine.round(&Freshness::Fresh).await;
        self.hints.track(wanted(&self.engine, &round));
        self.hints.watch(round.look.shims.iter().copied().collect());
        self.containers.clear();
        for seen in self.engine.seen() {
            self.containers.insert(seen.cgroup.clone(), seen.container.clone());
            for root in &seen.roots {
                self.paths.insert(*root, seen.cgroup.clone());
            }
        }
        self.learn_parents();
        // Of those whose end was lost.
        self.members.retain(|tgid, _| self.lineage.current(*tgid).is_some());
    }

    /// The cgroups that containers are made in: the paths of new ones are found from theirs.
    fn learn_parents(&mut self) {
        let layout = self.engine.layout();
        let parents: Vec<CgroupPath> = self.containers.keys().filter_map(CgroupPath::parent).collect();
        for parent in parents {
            let found = layout
                .hierarchies()
                .iter()
                .filter_map(|mount| mount.open(&parent).found().map(CgroupDir::cgroup));
            self.paths.extend(found.map(|cgroup| (cgroup, parent.clone())));
        }
    }

    /// Waits for events. Cancel safe.
    ///
    /// # Errors
    /// The probes failed.
    pub async fn next(&mut self) -> anyhow::Result<Vec<Told>> {
        let heard = self.hints.next().await?;
        Ok(heard.iter().map(|heard| self.tell(heard)).collect())
    }

    /// What was lost so far; `None` if that cannot be told.
    pub fn losses(&self) -> Option<Losses> {
        self.hints.losses()
    }

    fn tell(&mut self, heard: &Heard) -> Told {
        let (event, notice) = (&heard.event, follow(&mut self.lineage, heard));
        let told = Told { event: *event, notice, container: None, path: None, shim: None };
        match event.what {
            Occurrence::CgroupMade { cgroup, parent: Some(parent), .. } => {
                self.of_new_cgroup(told, cgroup, parent)
            }
            Occurrence::CgroupRemoved { cgroup, .. } => {
                let told = self.of_cgroup(told, cgroup);
                self.paths.remove(&cgroup);
                told
            }
            Occurrence::CgroupMade { cgroup, parent: None, .. }
            | Occurrence::CgroupPopulated { cgroup, .. }
            | Occurrence::CgroupFrozen { cgroup, .. } => self.of_cgroup(told, cgroup),
            // Whose number it was is not known any more.
            Occurrence::Unidentified { .. } => told,
            Occurrence::Forked { child, .. } => self.of_process(told, child.tgid),
            Occurrence::Execed { process, .. } | Occurrence::Killed { process, .. } => {
                self.of_process(told, process.tgid)
            }
            Occurrence::Exited { process, .. } => {
                let told = self.of_process(told, process.tgid);
                self.members.remove(&process.tgid);
                told
            }
        }
    }

    fn of_cgroup(&self, told: Told, cgroup: CgroupRef) -> Told {
        let path = self.paths.get(&cgroup).cloned();
        let container = path.as_ref().and_then(|path| self.container_at(path));
        Told { container, path, ..told }
    }

    /// An event has the id, its parent's directory has the name.
    fn of_new_cgroup(&mut self, told: Told, cgroup: CgroupRef, parent: CgroupId) -> Told {
        let above = CgroupRef { id: parent, ..cgroup };
        if let Some(path) = self.paths.get(&above).and_then(|above| self.child_with(above, cgroup)) {
            self.paths.insert(cgroup, path);
        }
        self.of_cgroup(told, cgroup)
    }

    fn child_with(&self, parent: &CgroupPath, wanted: CgroupRef) -> Option<CgroupPath> {
        let layout = self.engine.layout();
        let directory = layout.hierarchy(wanted.hierarchy)?.open(parent);
        let directory = directory.found()?;
        let names = directory.children();
        let name = names
            .found()?
            .iter()
            .find(|name| directory.child(name).found().is_some_and(|child| child.cgroup() == wanted))?;
        parent.child(name).ok()
    }

    /// By the command it was given, else by the cgroup it is in; what was found out once is remembered to its end.
    fn of_process(&mut self, told: Told, tgid: Tgid) -> Told {
        let ended = match &told.notice {
            Some(Notice::CommandEnded(ended)) => ended.invocation.as_ref(),
            Some(Notice::Reused(_)) | None => None,
        };
        let commanded = ended.or_else(|| self.lineage.invocation_of(tgid)).and_then(Invocation::container);
        let known = commanded.or_else(|| self.members.get(&tgid).cloned());
        let container = known.or_else(|| self.container_of_process(tgid));
        if let Some(container) = &container {
            self.members.insert(tgid, container.clone());
        }
        Told { container, shim: self.lineage.shim_of(tgid), ..told }
    }

    fn container_of_process(&self, tgid: Tgid) -> Option<ContainerKey> {
        let layout = self.engine.layout();
        layout
            .hierarchies()
            .iter()
            .find_map(|mount| self.container_at(procfs::cgroup_of(tgid, mount.hierarchy()).found()?))
    }

    /// The container whose cgroup this is, or is in.
    fn container_at(&self, path: &CgroupPath) -> Option<ContainerKey> {
        let mut place = Some(path.clone());
        while let Some(path) = place {
            if let Some(container) = self.containers.get(&path) {
                return Some(container.clone());
            }
            place = path.parent();
        }
        None
    }
}

/// The wall time of an event.
pub fn wall_of(event: &Event) -> jiff::Timestamp {
    clock::wall_of(event.at)
}
