//! A subtree of one hierarchy, read into facts.

use std::ffi::OsString;
use std::vec::IntoIter;

use super::dir::CgroupDir;
use super::error::{CgroupfsError, answer};
use super::hierarchy::HierarchyMount;
use crate::fact::{CgroupNode, CgroupTree, Controllers};
use crate::ident::{CgroupPath, Lookup, ProcessKey, StartTicks, Tgid};

/// Deepest tree that is read, and so the most directories held open at once. Nested container engines reach 20.
const MAX_DEPTH: usize = 64;
/// Most cgroups of one tree that are read.
const MAX_NODES: usize = 10_000;

/// A directory on the way down, with its children still to be visited.
struct Frame {
    dir: CgroupDir,
    pending: IntoIter<OsString>,
}

/// What has been read so far.
struct Walk<'a> {
    start_of: &'a dyn Fn(Tgid) -> Lookup<StartTicks>,
    nodes: Vec<CgroupNode>,
    /// v1: of all nodes together. v2: stays at "no", the root's `cgroup.events` covers the subtree.
    populated: Lookup<bool>,
}

// === impl HierarchyMount ===

impl HierarchyMount {
    /// Reads a cgroup and everything below it; `start_of` tells when a listed process started.
    ///
    /// `NotFound` only if the cgroup itself is gone; children that vanish meanwhile are left out. `Unavailable` if
    /// a cgroup of the tree cannot be opened or listed, or if the tree is deeper or larger than is read: a part
    /// of a tree is no tree. Questions about one cgroup that fail are marked in its node.
    pub fn tree(
        &self,
        path: &CgroupPath,
        start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>,
    ) -> Lookup<CgroupTree> {
        let walk = Walk { start_of, nodes: Vec::new(), populated: Lookup::Found(false) };
        answer(self.open_dir(path).and_then(|root| walk.run(root))).map(|(nodes, populated)| CgroupTree {
            controllers: self.controllers(),
            hierarchy_name: self.name().to_owned(),
            nodes,
            populated,
        })
    }
}

// === impl Walk ===

impl Walk<'_> {
    fn run(mut self, root: CgroupDir) -> Result<(Vec<CgroupNode>, Lookup<bool>), CgroupfsError> {
        let pending = self.visit(&root)?.into_iter();
        let mut frames = vec![Frame { dir: root, pending }];
        loop {
            let depth = frames.len();
            let Some(frame) = frames.last_mut() else { break };
            let Some(name) = frame.pending.next() else {
                if depth == 1 {
                    // Last of all, so that it is no older than any member of the list.
                    self.count(&frame.dir)?;
                }
                frames.pop();
                continue;
            };
            let child = frame.dir.open_child(&name).and_then(|dir| {
                let pending = self.visit(&dir)?.into_iter();
                Ok(Frame { dir, pending })
            });
            match child {
                Ok(child) if depth >= MAX_DEPTH => {
                    let path = child.dir.path().clone();
                    return Err(CgroupfsError::TooDeep { path, levels: MAX_DEPTH });
                }
                Ok(child) => frames.push(child),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.nodes, self.populated))
    }

    /// Reads one cgroup and returns the names of its children; fails with "gone" if it vanishes meanwhile.
    fn visit(&mut self, dir: &CgroupDir) -> Result<Vec<OsString>, CgroupfsError> {
        if self.nodes.len() >= MAX_NODES {
            return Err(CgroupfsError::TooMany { path: dir.path().clone(), cgroups: MAX_NODES });
        }
        let children = dir.child_names()?;
        let node = CgroupNode {
            cgroup: dir.cgroup(),
            path: dir.path().clone(),
            members: self.members(dir)?,
            freeze: unless_gone(dir.freeze())?,
        };
        if dir.controllers() != Controllers::Unified {
            self.count(dir)?;
        }
        self.nodes.push(node);
        Ok(children)
    }

    fn members(&self, dir: &CgroupDir) -> Result<Lookup<Vec<ProcessKey>>, CgroupfsError> {
        let procs = match dir.procs() {
            // Its processes are listed by the domain, which is the root of what is read, or below it.
            Err(error) if error.is_threaded() && !self.nodes.is_empty() => Ok(vec![]),
            procs => procs,
        };
        let tgids = match unless_gone(procs)? {
            Lookup::Found(tgids) => tgids,
            Lookup::NotFound => return Ok(Lookup::NotFound),
            Lookup::Unavailable(reason) => return Ok(Lookup::Unavailable(reason)),
        };
        let mut members = Vec::with_capacity(tgids.len());
        for tgid in tgids {
            match (self.start_of)(tgid) {
                Lookup::Found(start) => members.push(ProcessKey { tgid, start }),
                // It ended after it was listed.
                Lookup::NotFound => {}
                Lookup::Unavailable(reason) => return Ok(Lookup::Unavailable(reason)),
            }
        }
        Ok(Lookup::Found(members))
    }

    /// One populated cgroup makes the tree populated; short of that an unanswered question outweighs a "no".
    fn count(&mut self, dir: &CgroupDir) -> Result<(), CgroupfsError> {
        match (unless_gone(dir.is_populated())?, &self.populated) {
            (_, Lookup::Found(true)) | (Lookup::Found(false) | Lookup::NotFound, _) => {}
            (news, _) => self.populated = news,
        }
        Ok(())
    }
}

/// Keeps "gone" as an error, as it ends the visit, and turns every other failure into a marked answer.
fn unless_gone<T>(result: Result<T, CgroupfsError>) -> Result<Lookup<T>, CgroupfsError> {
    match result {
        Err(error) if error.is_gone() => Err(error),
        result => Ok(answer(result)),
    }
}
