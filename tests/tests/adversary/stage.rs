//! The hierarchies of one view, and the plain way to change them that everybody else on a node has.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use reaper_userspace::cgroupfs::Layout;
use reaper_userspace::fact::Controllers;

/// `favordynmods` makes moving processes cheap: a machine-wide matter, for as long as this hierarchy exists.
const NAMED: &str = "none,name=reaper-test-adversary,favordynmods";
/// Directory, filesystem, options: the freezer, one that nobody else knows, and v2.
const MOUNTS: [(&str, &str, Option<&str>); 3] =
    [("freezer", "cgroup", Some("freezer")), ("named", "cgroup", Some(NAMED)), ("unified", "cgroup2", None)];
/// What is mounted in each view.
const VIEWS: [(&str, &[&str]); 3] =
    [("v1", &["freezer", "named"]), ("hybrid", &["freezer", "named", "unified"]), ("v2", &["unified"])];

/// One view.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) layout: Arc<Layout>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) base: String,
}

/// One hierarchy.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) controllers: Controllers,
}

pub(crate) fn mount_all(root: &Path) -> Result<()> {
    for (name, kind, options) in MOUNTS {
        let target = root.join(name);
        fs::create_dir(&target)?;
        mount(Some("cgroup"), &target, Some(kind), MsFlags::empty(), options)
            .with_context(|| format!("mount {name}"))?;
    }
    Ok(())
}

pub(crate) fn unmount_all(root: &Path, base: &str) -> Result<()> {
    for (name, _, _) in MOUNTS {
        let target = root.join(name);
        remove_below(&target.join(base));
        umount2(&target, MntFlags::MNT_DETACH)?;
    }
    Ok(())
}

/// Removes what can be removed.
pub(crate) fn remove_below(dir: &Path) {
    for child in below(dir) {
        remove_below(&child);
    }
    let _busy_or_gone = fs::remove_dir(dir);
}

pub(crate) fn below(dir: &Path) -> Vec<PathBuf> {
    // A directory of cgroupfs has two links and one for each below it; its files are many.
    if fs::metadata(dir).is_ok_and(|metadata| metadata.nlink() == 2) {
        return vec![];
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

// === impl Stage ===

impl Stage {
    pub(crate) fn all(root: &Path, base: &str) -> Result<Vec<Self>> {
        VIEWS.iter().map(|(name, mounts)| Self::new(name, mounts, root, base)).collect()
    }

    fn new(name: &'static str, mounts: &[&str], root: &Path, base: &str) -> Result<Self> {
        let roots: Vec<PathBuf> = mounts.iter().map(|mount| root.join(mount)).collect();
        let layout = Layout::discover(&roots)?;
        let trees = layout
            .hierarchies()
            .iter()
            .map(|mount| Tree { root: mount.path().to_owned(), controllers: mount.controllers() })
            .collect();
        for root in &roots {
            fs::create_dir_all(root.join(base)).with_context(|| format!("mkdir {base}"))?;
        }
        Ok(Self { name, layout: Arc::new(layout), trees, base: base.to_owned() })
    }
}

// === impl Tree ===

impl Tree {
    pub(crate) fn dir(&self, base: &str, name: &[u8]) -> PathBuf {
        self.root.join(base).join(OsStr::from_bytes(name))
    }

    /// Freezes or thaws exactly this cgroup.
    pub(crate) fn freeze(&self, dir: &Path, frozen: bool) -> bool {
        let (file, value) = match (self.controllers, frozen) {
            (Controllers::Freezer, true) => ("freezer.state", "FROZEN"),
            (Controllers::Freezer, false) => ("freezer.state", "THAWED"),
            (Controllers::Unified, true) => ("cgroup.freeze", "1"),
            (Controllers::Unified, false) => ("cgroup.freeze", "0"),
            (Controllers::Other, _) => return false,
        };
        write(&dir.join(file), value).is_ok()
    }

    /// On v2; v1 knows no such thing and needs none.
    pub(crate) fn make_threaded(&self, dir: &Path) -> bool {
        self.controllers != Controllers::Unified || write(&dir.join("cgroup.type"), "threaded").is_ok()
    }

    /// Whether v1 keeps processes there from dying.
    pub(crate) fn keeps_alive(&self, dir: &Path) -> bool {
        self.controllers == Controllers::Freezer
            && fs::read(dir.join("freezer.state")).is_ok_and(|state| !state.starts_with(b"THAWED"))
    }

    pub(crate) fn is_freeze_requested(&self, dir: &Path) -> bool {
        let file = match self.controllers {
            Controllers::Freezer => "freezer.self_freezing",
            Controllers::Unified => "cgroup.freeze",
            Controllers::Other => return false,
        };
        fs::read(dir.join(file)).is_ok_and(|text| text.starts_with(b"1"))
    }
}

/// Moves the first thread of a process of the domain above into a threaded cgroup.
pub(crate) fn enter_threaded(dir: &Path, pid: i32) -> bool {
    write(&dir.join("cgroup.threads"), &pid.to_string()).is_ok()
}

/// Moves a process into a cgroup.
pub(crate) fn enter(dir: &Path, pid: i32) -> bool {
    write(&dir.join("cgroup.procs"), &pid.to_string()).is_ok()
}

/// Writes to a file that exists; `fs::write` would try to make it.
fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    io::Write::write_all(&mut file, value.as_bytes())
}

/// The numbers in a `cgroup.procs`.
pub(crate) fn listed(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}
