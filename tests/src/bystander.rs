//! Processes that have nothing to do with the containers of a fixture and must survive everything.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use crate::cgroup::Cgroups;
use crate::image::sha256;
use crate::node::Node;
use crate::process::Incarnation;

/// A process in a cgroup that looks like a container's but belongs to nobody that is known.
#[derive(Debug)]
pub struct Bystander {
    child: Child,
    incarnation: Incarnation,
    cgroups: Cgroups,
    parent: String,
}

/// Processes that are expected to stay alive.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    processes: BTreeSet<Incarnation>,
}

// === impl Bystander ===

impl Bystander {
    /// Starts it, in a cgroup named like a container's (64 hexadecimal digits) in every hierarchy of the node.
    pub fn start(node: &Node) -> Result<Self> {
        let mut child = Command::new("sleep")
            .arg("100000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("start a bystander")?;
        let Some(incarnation) = Incarnation::of(child.id())? else {
            child.kill().context("end the bystander")?;
            anyhow::bail!("the bystander ended by itself");
        };
        let parent = format!("{}-bystander", node.name());
        let path = format!("{parent}/{}", sha256(parent.as_bytes()));
        let bystander = Self { child, incarnation, cgroups: node.cgroups().clone(), parent };
        bystander.cgroups.enter(&path, &BTreeSet::from([incarnation]))?;
        Ok(bystander)
    }

    /// The process.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait().map(drop));
        let removed = self.cgroups.remove(&self.parent);
        if let Err(error) = ended.context("end the bystander").and(removed) {
            crate::report(&format!("{}: {error:#}", self.parent));
        }
    }
}

// === impl Watch ===

impl Watch {
    /// Watches these processes.
    pub fn of(processes: impl IntoIterator<Item = Incarnation>) -> Self {
        Self { processes: processes.into_iter().collect() }
    }

    /// Watches every process that lives now, except the caller and its children.
    pub fn machine() -> Result<Self> {
        let mut processes = BTreeSet::new();
        for entry in fs::read_dir("/proc").context("read /proc")? {
            let name = entry.context("entry of /proc")?.file_name();
            let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
            if let Some(pid) = pid.filter(|pid| *pid != std::process::id()) {
                processes.extend(Incarnation::of(pid)?);
            }
        }
        Ok(Self { processes })
    }

    /// True if it watches a process with this number.
    pub fn has(&self, pid: u32) -> bool {
        self.processes.iter().any(|process| process.pid == pid)
    }

    /// Those that have died.
    pub fn dead(&self) -> Result<Vec<Incarnation>> {
        let mut dead = Vec::new();
        for process in &self.processes {
            dead.extend((!process.is_alive()?).then_some(*process));
        }
        Ok(dead)
    }
}
