//! The machine, its containerd, and containers with the systemd cgroup driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::tools::{Product, Unit, must};
use crate::cgroup::Cgroups;
use crate::command::{Finished, run};
use crate::image::{self, IMAGE};
use crate::process::{Incarnation, processes_naming};
use crate::runc::Faults;
use crate::wait::{wait_for, wait_until};

pub(super) const NAMESPACE: &str = "k8s.io";
const STATE: &str = "/run/containerd/io.containerd.runtime.v2.task";
const CALL: Duration = Duration::from_mins(2);
pub(super) const SOON: Duration = Duration::from_mins(1);

/// A whole machine and its containerd.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) cgroups: Cgroups,
    pub(super) product: Product,
    dir: PathBuf,
    count: AtomicU32,
}

/// A container, whatever became of it: its names.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) id: String,
    slice: String,
}

// === impl Container ===

impl Container {
    /// As kubelet's systemd driver and containerd's CRI plugin write it for runc.
    fn cgroups_path(&self) -> String {
        format!("{}:cri-containerd:{}", self.slice, self.id)
    }

    pub(super) fn slice(&self) -> &str {
        &self.slice
    }

    pub(super) fn scope(&self) -> String {
        format!("cri-containerd-{}.scope", self.id)
    }

    /// The cgroup's path from the root of each hierarchy: each dash of a slice's name is one level.
    pub(super) fn cgroup(&self) -> String {
        let name = self.slice.trim_end_matches(".slice");
        let levels = name.match_indices('-').filter_map(|(at, _)| name.get(..at)).chain([name]);
        let mut path = PathBuf::from("/");
        path.extend(levels.map(|level| format!("{level}.slice")));
        path.join(self.scope()).display().to_string()
    }

    pub(super) fn bundle(&self) -> PathBuf {
        Path::new(STATE).join(NAMESPACE).join(&self.id)
    }
}

// === impl Machine ===

impl Machine {
    /// Imports the image into the machine's containerd.
    pub(super) fn take() -> Result<Self> {
        let dir = PathBuf::from("/lab/work");
        fs::create_dir_all(dir.join("bin")).context("mkdir /lab/work/bin")?;
        let archive = image::archive(&dir, &image::rootfs(&dir)?)?;
        let archive = archive.to_str().context("a plain path")?;
        must("ctr", &["-n", NAMESPACE, "images", "import", archive])?;
        let product = Product::new(&dir);
        Ok(Self { cgroups: Cgroups::mounted()?, product, dir, count: AtomicU32::new(0) })
    }

    /// Names for a container of a pod of its own.
    pub(super) fn name(&self, label: &str) -> Container {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let slice = format!("kubepods-burstable-pod{number:08x}_2222_3333_4444_555555555555.slice");
        Container { id: format!("{label}{number}"), slice }
    }

    pub(super) fn ctr(args: &[&str]) -> Result<Finished> {
        let called = run(Command::new("ctr").args(["-n", NAMESPACE]).args(args), CALL);
        called.with_context(|| format!("ctr {}", args.join(" ")))
    }

    pub(super) fn must_ctr(args: &[&str]) -> Result<String> {
        Self::ctr(args)?.expect_success(&format!("ctr {}", args.join(" ")))
    }

    /// `ctr run --detach` with the systemd cgroup driver.
    pub(super) fn run(&self, container: &Container, faults: &Faults, args: &[&str]) -> Result<Finished> {
        let runc = faults.install(&self.dir.join("bin"), &container.id)?;
        let runc = runc.to_str().context("a plain path")?;
        let path = container.cgroups_path();
        let fixed = ["run", "--detach", "--null-io", "--runc-systemd-cgroup", "--cgroup", &path];
        Self::ctr(&[&fixed, ["--runc-binary", runc, IMAGE, &container.id].as_slice(), args].concat())
    }

    /// Runs a container that must start in its scope, and returns its init.
    pub(super) fn start(&self, container: &Container, faults: &Faults, args: &[&str]) -> Result<Incarnation> {
        self.run(container, faults, args)?.expect_success(&format!("ctr run {}", container.id))?;
        let init = Self::init(container)?;
        ensure!(Unit::of(&container.scope())?.is_active(), "{} should be active", container.scope());
        Ok(init)
    }

    /// The init of a container's task, as containerd knows it.
    pub(super) fn init(container: &Container) -> Result<Incarnation> {
        let (pid, _) = Self::task(&container.id)?.context("no task")?;
        Incarnation::of(pid)?.with_context(|| format!("init {pid} of {} is gone", container.id))
    }

    /// Number of the init and status of a task.
    pub(super) fn task(id: &str) -> Result<Option<(u32, String)>> {
        let list = Self::must_ctr(&["task", "list"])?;
        let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        Ok(lines.find_map(|words| match words.as_slice() {
            [name, pid, status] if *name == id => Some((pid.parse().ok()?, (*status).to_owned())),
            _ => None,
        }))
    }

    /// Processes of a container that runs, once there are so many.
    pub(super) fn await_members(&self, container: &Container, count: usize) -> Result<()> {
        wait_until(&format!("{count} processes in {}", container.cgroup()), SOON, || {
            Ok(self.cgroups.members(&container.cgroup())?.len() == count)
        })
    }

    /// Waits until no shim, runc or client works for a container.
    pub(super) fn settled(container: &Container) -> Result<()> {
        wait_until(&format!("the runtime's own removal of {}", container.id), SOON, || {
            Ok(processes_naming(&[&format!(" {} ", container.id)])?.is_empty())
        })?;
        ensure!(Self::task(&container.id)?.is_none(), "{} still has a task", container.id);
        Ok(())
    }

    /// The shim that was started for a container.
    pub(super) fn shim(container: &Container) -> Result<Incarnation> {
        wait_for(&format!("the shim of {}", container.id), SOON, || {
            Ok(processes_naming(&[&format!(" -id {} -address ", container.id)])?.first().copied())
        })
    }

    /// Unit, cgroup in every hierarchy and mounts below the bundle are gone, or will be very soon.
    pub(super) fn await_nothing(&self, container: &Container) -> Result<()> {
        self.await_nothing_within(Duration::from_secs(10), container)
    }

    pub(super) fn await_nothing_within(&self, limit: Duration, container: &Container) -> Result<()> {
        let left = || -> Result<Vec<String>> {
            let mut left: Vec<String> = self
                .cgroups
                .tree(&container.cgroup())?
                .into_iter()
                .map(|dir| format!("cgroup {}", dir.display()))
                .collect();
            let unit = Unit::of(&container.scope())?;
            if !unit.is_gone() {
                left.push(format!("unit {unit:?}"));
            }
            let mounts = crate::node::mounts_below(&container.bundle())?;
            left.extend(mounts.iter().map(|mount| format!("mount {}", mount.display())));
            Ok(left)
        };
        wait_until(&format!("nothing left of {}", container.id), limit, || Ok(left()?.is_empty()))
            .with_context(|| {
                format!("left: {}", left().map_or_else(|e| e.to_string(), |left| left.join(", ")))
            })
    }

    /// Ends a container as its owner would.
    pub(super) fn end(container: &Container) -> Result<()> {
        if let Some((_, status)) = Self::task(&container.id)? {
            if status == "PAUSED" {
                Self::must_ctr(&["task", "resume", &container.id])?;
            }
            Self::must_ctr(&["task", "rm", "--force", &container.id])?;
        }
        Self::must_ctr(&["container", "rm", &container.id]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dash_of_a_slice_is_a_level() {
        let container = Container { id: "x".to_owned(), slice: "kubepods-burstable-pod1_2.slice".to_owned() };
        assert_eq!(
            container.cgroup(),
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-x.scope"
        );
    }
}
