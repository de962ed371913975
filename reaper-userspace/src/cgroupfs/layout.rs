//! Which hierarchies are mounted, and where.
//!
//! The mount table is the source, not directory names: `cpu -> cpu,cpuacct` links, co-mounted controllers and
//! several mounts of one hierarchy need no special case, as a hierarchy is its superblock (device number).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::CgroupfsError;
use super::hierarchy::HierarchyMount;
use crate::fact::Controllers;
use crate::ident::Hierarchy;
use crate::kernel::{Membership, MountEntry, parse_memberships, parse_mountinfo, read_path};

/// Far above the mount table of a node with thousands of containers.
const MOUNTINFO_LIMIT: u64 = 64 << 20;
/// 16 hierarchies with paths of at most 4 KiB each.
const MEMBERSHIP_LIMIT: u64 = 1 << 20;

const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What kinds of hierarchy are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutMode {
    /// Only v1 hierarchies.
    V1,
    /// v1 hierarchies and cgroup v2 beside them.
    Hybrid,
    /// Only cgroup v2.
    V2,
}

/// Why the paths of this node may not be what they seem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutWarning {
    /// A process is seen outside the root: we are in a cgroup namespace, or it is.
    #[error("{file} shows {path:?}: cgroup paths are seen from inside a cgroup namespace")]
    Namespaced {
        /// The file that shows it.
        file: &'static str,
        /// The path that begins with `/..`.
        path: PathBuf,
    },
    /// Processes of other PID namespaces have no number here: v2 lists them as 0, v1 leaves them out.
    #[error("not in the initial PID namespace: members of v1 cgroups may be missing")]
    PidNamespace,
    /// What is mounted is not the whole hierarchy, or is seen from inside a cgroup namespace.
    #[error("{mount:?} shows {root:?} of its hierarchy and not the root")]
    Partial {
        /// Mount point.
        mount: PathBuf,
        /// The directory of the hierarchy that is mounted there.
        root: PathBuf,
    },
}

/// The hierarchies of a node, each once.
#[derive(Debug)]
pub struct Layout {
    mode: LayoutMode,
    hierarchies: Vec<HierarchyMount>,
    warnings: Vec<LayoutWarning>,
}

// === impl Layout ===

impl Layout {
    /// Where distributions mount them.
    pub const DEFAULT_ROOT: &'static str = "/sys/fs/cgroup";

    /// Finds every hierarchy mounted at or below the roots; no roots mean [`Layout::DEFAULT_ROOT`].
    ///
    /// A root without any cgroup filesystem is an error, never an empty layout.
    pub fn discover(roots: &[PathBuf]) -> Result<Self, CgroupfsError> {
        let default = [PathBuf::from(Self::DEFAULT_ROOT)];
        let roots = if roots.is_empty() { &default } else { roots };
        // The mount table of the calling thread: paths are opened with its mount namespace and root.
        let mounts = read_path("/proc/thread-self/mountinfo", MOUNTINFO_LIMIT)
            .map_err(CgroupfsError::Discover)
            .and_then(|text| parse_mountinfo(&text).map_err(CgroupfsError::MountTable))?;
        // Read after the mounts, so that a hierarchy mounted in between has its line.
        let ours = memberships("/proc/self/cgroup")?;

        let mut warnings = namespace_warnings(&ours)?;
        warnings.extend(pid_namespace_warning());
        let mut seen = BTreeSet::new();
        let mut hierarchies = Vec::new();
        for root in roots {
            let mut any = false;
            for mount in at_or_below(root, &mounts)? {
                any = true;
                if seen.contains(&mount.device) {
                    continue;
                }
                if let Some(hierarchy) = open(mount, &ours)? {
                    seen.insert(mount.device);
                    if mount.root != Path::new("/") {
                        warnings.push(LayoutWarning::Partial {
                            mount: mount.target.clone(),
                            root: mount.root.clone(),
                        });
                    }
                    hierarchies.push(hierarchy);
                }
            }
            if !any {
                return Err(CgroupfsError::NoHierarchy { root: root.clone() });
            }
        }
        Ok(Self { mode: mode(&hierarchies), hierarchies, warnings })
    }

    /// Which kinds are mounted.
    pub const fn mode(&self) -> LayoutMode {
        self.mode
    }

    /// All hierarchies, in the order of the roots and of their mounting.
    pub fn hierarchies(&self) -> &[HierarchyMount] {
        &self.hierarchies
    }

    /// The hierarchy with this number.
    pub fn hierarchy(&self, hierarchy: Hierarchy) -> Option<&HierarchyMount> {
        self.hierarchies.iter().find(|mount| mount.hierarchy() == hierarchy)
    }

    /// What `doctor` should tell.
    pub fn warnings(&self) -> &[LayoutWarning] {
        &self.warnings
    }
}

fn memberships(file: &'static str) -> Result<Vec<Membership>, CgroupfsError> {
    let text = read_path(file, MEMBERSHIP_LIMIT).map_err(CgroupfsError::Discover)?;
    parse_memberships(&text).map_err(CgroupfsError::Memberships)
}

/// A process outside the root of our cgroup namespace has a path that begins with `/..`
/// (`fs/kernfs/dir.c:kernfs_path_from_node`).
fn namespace_warnings(ours: &[Membership]) -> Result<Vec<LayoutWarning>, CgroupfsError> {
    let init = memberships("/proc/1/cgroup")?;
    let outside = |lines: &[Membership]| {
        lines.iter().map(|line| line.path.clone()).find(|path| path.starts_with("/.."))
    };
    Ok([("/proc/self/cgroup", outside(ours)), ("/proc/1/cgroup", outside(&init))]
        .into_iter()
        .filter_map(|(file, path)| path.map(|path| LayoutWarning::Namespaced { file, path }))
        .collect())
}

/// The initial namespace has a fixed inode number (`linux/proc_ns.h:PROC_PID_INIT_INO`).
fn pid_namespace_warning() -> Option<LayoutWarning> {
    let initial =
        fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name == Path::new(INITIAL_PID_NAMESPACE));
    (!initial).then_some(LayoutWarning::PidNamespace)
}

fn at_or_below<'a>(root: &Path, mounts: &'a [MountEntry]) -> Result<Vec<&'a MountEntry>, CgroupfsError> {
    let real =
        fs::canonicalize(root).map_err(|source| CgroupfsError::Root { root: root.to_owned(), source })?;
    Ok(mounts
        .iter()
        .filter(|mount| matches!(mount.fs_type.as_str(), "cgroup" | "cgroup2"))
        .filter(|mount| mount.target.starts_with(&real))
        .collect())
}

/// `None` for a mount that another mount hides.
fn open(mount: &MountEntry, ours: &[Membership]) -> Result<Option<HierarchyMount>, CgroupfsError> {
    let (hierarchy, controllers, name) = if mount.fs_type == "cgroup2" {
        (Hierarchy::UNIFIED, Controllers::Unified, String::new())
    } else {
        let line = line_of(mount, ours).ok_or_else(|| CgroupfsError::Unnumbered {
            path: mount.target.clone(),
            options: mount.super_options.clone(),
        })?;
        let freezer = line.controllers.split(',').any(|name| name == "freezer");
        let controllers = if freezer { Controllers::Freezer } else { Controllers::Other };
        (line.hierarchy, controllers, line.controllers.clone())
    };
    HierarchyMount::open_root(hierarchy, controllers, name, mount)
}

/// The line of a v1 hierarchy names exactly controllers (and name) that are among its superblock's options; a
/// controller is in one hierarchy only.
fn line_of<'a>(mount: &MountEntry, ours: &'a [Membership]) -> Option<&'a Membership> {
    let options: BTreeSet<&str> = mount.super_options.split(',').collect();
    ours.iter()
        .filter(|line| line.hierarchy != Hierarchy::UNIFIED)
        .find(|line| line.controllers.split(',').all(|name| options.contains(name)))
}

fn mode(hierarchies: &[HierarchyMount]) -> LayoutMode {
    let unified = |mount: &HierarchyMount| mount.hierarchy() == Hierarchy::UNIFIED;
    match (hierarchies.iter().any(unified), hierarchies.iter().all(unified)) {
        (true, true) => LayoutMode::V2,
        (true, false) => LayoutMode::Hybrid,
        (false, _) => LayoutMode::V1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(options: &str) -> MountEntry {
        let line = format!("1 2 0:1 / /sys/fs/cgroup/x rw - cgroup cgroup {options}");
        parse_mountinfo(line.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn a_v1_mount_finds_its_number_by_controllers_and_name() {
        let ours = parse_memberships(b"9:name=systemd:/\n5:cpu,cpuacct:/\n4:cpuset:/\n0::/\n").unwrap();
        let number = |options| line_of(&mount(options), &ours).map(|line| line.hierarchy.0);
        assert_eq!(number("rw,xattr,name=systemd"), Some(9));
        assert_eq!(number("rw,cpu,cpuacct"), Some(5));
        assert_eq!(number("rw,cpuset,noprefix"), Some(4));
        assert_eq!(number("rw,memory"), None);
        assert_eq!(number("rw,cpu"), None);
    }

    #[test]
    fn a_root_without_cgroups_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = Layout::discover(&[dir.path().to_owned()]).unwrap_err();
        assert!(matches!(error, CgroupfsError::NoHierarchy { .. }), "{error}");
        let missing = Layout::discover(&[dir.path().join("missing")]).unwrap_err();
        assert!(matches!(missing, CgroupfsError::Root { .. }), "{missing}");
    }
}
