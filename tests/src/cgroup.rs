//! Cgroup directories of every mounted hierarchy: listing, filling and removing those that a fixture made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::io::Errno;

use crate::process::{Incarnation, is_gone, members};
use crate::wait::wait_until;

/// How the names of all fixtures and tests begin.
const PREFIX: &str = "reaper-";
const REMOVAL: Duration = Duration::from_secs(10);

/// A hierarchy and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedHierarchy {
    /// The mount point.
    pub root: PathBuf,
    /// True for cgroup v2.
    pub unified: bool,
    /// Super block options: on v1 they name the controllers.
    pub options: String,
}

/// The hierarchies a fixture works in.
#[derive(Clone, Debug)]
pub struct Cgroups {
    hierarchies: Vec<MountedHierarchy>,
}

/// All cgroup directories of the machine at one moment.
#[derive(Clone, Debug)]
pub struct Inventory {
    dirs: BTreeSet<PathBuf>,
}

// === impl MountedHierarchy ===

impl MountedHierarchy {
    /// True for the v1 hierarchy that has the freezer.
    pub fn is_freezer(&self) -> bool {
        !self.unified && self.options.split(',').any(|option| option == "freezer")
    }

    /// The directory of a cgroup, given its path from the root.
    pub fn dir(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

// === impl Cgroups ===

impl Cgroups {
    /// All hierarchies mounted in the caller's mount namespace, each once.
    pub fn mounted() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
        let mut by_device = BTreeMap::new();
        for line in text.lines() {
            let Some((device, hierarchy)) = parse_mount(line) else { continue };
            by_device.entry(device).or_insert(hierarchy);
        }
        Ok(Self { hierarchies: by_device.into_values().collect() })
    }

    pub(crate) fn only(&self, wanted: impl Fn(&MountedHierarchy) -> bool) -> Self {
        Self { hierarchies: self.hierarchies.iter().filter(|one| wanted(one)).cloned().collect() }
    }

    /// The hierarchies.
    pub fn hierarchies(&self) -> &[MountedHierarchy] {
        &self.hierarchies
    }

    /// The hierarchy through which processes are frozen: the v1 freezer's, else v2's.
    pub fn freezer(&self) -> Result<&MountedHierarchy> {
        let mut all = self.hierarchies.iter();
        all.clone()
            .find(|one| one.is_freezer())
            .or_else(|| all.find(|one| one.unified))
            .context("no hierarchy that can freeze")
    }

    /// Directories that exist for a path, one a hierarchy.
    pub fn dirs(&self, path: &str) -> Vec<PathBuf> {
        self.hierarchies.iter().map(|one| one.dir(path)).filter(|dir| dir.is_dir()).collect()
    }

    /// A path and everything below it, in every hierarchy, parents first.
    pub fn tree(&self, path: &str) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for dir in self.dirs(path) {
            found.extend(subtree(&dir)?);
        }
        Ok(found)
    }

    /// Processes anywhere at or below a path, in any hierarchy.
    pub fn members(&self, path: &str) -> Result<BTreeSet<Incarnation>> {
        let mut found = BTreeSet::new();
        for dir in self.tree(path)? {
            found.extend(members(&dir)?);
        }
        Ok(found)
    }

    /// True if the freezer reports all tasks of the cgroup stopped.
    pub fn is_frozen(&self, path: &str) -> Result<bool> {
        let hierarchy = self.freezer()?;
        let (file, wanted) =
            if hierarchy.unified { ("cgroup.events", "frozen 1") } else { ("freezer.state", "FROZEN") };
        match fs::read_to_string(hierarchy.dir(path).join(file)) {
            Ok(text) => Ok(text.lines().any(|line| line == wanted)),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("read {file} of {path}")),
        }
    }

    /// Makes the cgroup in every hierarchy and moves the processes into it.
    pub fn enter(&self, path: &str, processes: &BTreeSet<Incarnation>) -> Result<()> {
        for hierarchy in &self.hierarchies {
            let dir = hierarchy.dir(path);
            make_below(&hierarchy.root, path)?;
            for process in processes {
                let procs = dir.join("cgroup.procs");
                fs::write(&procs, process.pid.to_string())
                    .with_context(|| format!("move {} to {}", process.pid, dir.display()))?;
            }
        }
        Ok(())
    }

    /// Kills what is in the tree and removes it from every hierarchy.
    pub fn remove(&self, path: &str) -> Result<()> {
        wait_until(&format!("end of all processes in {path}"), REMOVAL, || {
            let members = self.members(path)?;
            for member in &members {
                member.kill()?;
            }
            // A task stopped by the v1 freezer dies only after the thaw.
            for dir in self.tree(path)? {
                thaw(&dir)?;
            }
            Ok(members.is_empty())
        })?;
        wait_until(&format!("removal of {path}"), REMOVAL, || {
            let mut dirs = self.tree(path)?;
            while let Some(dir) = dirs.pop() {
                match fs::remove_dir(&dir) {
                    Ok(()) => {}
                    // Busy: a task that was just killed is still leaving.
                    Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::ResourceBusy => {}
                    Err(error) => return Err(error).with_context(|| format!("rmdir {}", dir.display())),
                }
            }
            Ok(self.dirs(path).is_empty())
        })
    }
}

// === impl Inventory ===

impl Inventory {
    /// Lists every cgroup of every mounted hierarchy.
    pub fn take() -> Result<Self> {
        let cgroups = Cgroups::mounted()?;
        Ok(Self { dirs: cgroups.tree("/")?.into_iter().collect() })
    }

    /// Directories of this inventory that another lacks: with a later one what vanished, with an earlier one
    /// what is new. Those of fixtures are left out: they come and go on a machine where several tests run.
    pub fn missing_from(&self, other: &Self) -> Vec<PathBuf> {
        self.dirs.difference(&other.dirs).filter(|dir| !made_by_fixtures(dir)).cloned().collect()
    }

    /// Directories with a component that begins with the text.
    pub fn naming(&self, prefix: &str) -> Vec<PathBuf> {
        let begins = |part: Component<'_>| part.as_os_str().to_string_lossy().starts_with(prefix);
        let named = |dir: &&PathBuf| dir.components().any(begins);
        self.dirs.iter().filter(named).cloned().collect()
    }
}

/// Makes a cgroup and its ancestors.
fn make_below(root: &Path, path: &str) -> Result<()> {
    let mut dir = root.to_owned();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        dir.push(name);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made.with_context(|| format!("mkdir {}", dir.display()))?,
        }
        // A v1 cpuset takes no member before it has processors and memory of its own.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            inherit(&dir, file)?;
        }
    }
    Ok(())
}

fn made_by_fixtures(dir: &Path) -> bool {
    dir.components().any(|part| part.as_os_str().to_string_lossy().starts_with(PREFIX))
}

fn parse_mount(line: &str) -> Option<(String, MountedHierarchy)> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let (device, root_in_fs, mount_point) = (left.next()?, left.next()?, left.next()?);
    let mut right = right.split(' ');
    let unified = match right.next()? {
        "cgroup" => false,
        "cgroup2" => true,
        _ => return None,
    };
    let options = right.nth(1)?.to_owned();
    let hierarchy = MountedHierarchy { root: PathBuf::from(mount_point), unified, options };
    (root_in_fs == "/").then(|| (device.to_owned(), hierarchy))
}

/// The directory and everything below it, parents first; what vanishes meanwhile is left out.
fn subtree(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error).with_context(|| format!("list {}", dir.display())),
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
        found.push(dir);
    }
    Ok(found)
}

fn thaw(dir: &Path) -> Result<()> {
    for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        write_existing(&dir.join(file), value)?;
    }
    Ok(())
}

fn inherit(dir: &Path, file: &str) -> Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    match fs::read_to_string(parent.join(file)) {
        Ok(value) => write_existing(&dir.join(file), value.trim()),
        Err(_) => Ok(()),
    }
}

/// Writes a cgroup file if the cgroup has it.
fn write_existing(path: &Path, value: &str) -> Result<()> {
    let mut file = match fs::OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("open {}", path.display())),
    };
    match io::Write::write_all(&mut file, value.as_bytes()) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::NODEV) => {
            Err(error).with_context(|| format!("write {value:?} to {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hierarchy_is_read_from_its_mount() {
        let line = "31 26 0:29 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer";
        let (device, hierarchy) = parse_mount(line).unwrap();
        assert_eq!((device.as_str(), hierarchy.is_freezer()), ("0:29", true));
        assert_eq!(hierarchy.dir("/a/b"), Path::new("/sys/fs/cgroup/freezer/a/b"));
    }

    #[test]
    fn other_filesystems_and_parts_of_hierarchies_are_no_hierarchy() {
        assert!(parse_mount("31 26 0:29 / /tmp rw - tmpfs tmpfs rw").is_none());
        assert!(parse_mount("31 26 0:29 /part /mnt rw - cgroup2 none rw").is_none());
    }
}
