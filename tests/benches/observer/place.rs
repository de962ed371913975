//! Cgroups of our own, gone with their value.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use reaper_userspace::ident::{CgroupId, CgroupRef, Hierarchy};

/// A cgroup v2 directory.
pub(crate) struct Place {
    path: PathBuf,
}

// === impl Place ===

impl Place {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = fields.find(|fields| fields.get(2) == Some(&"cgroup2")).context("no cgroup v2")?;
        let mount = mount.get(1).context("a mount has a place")?;
        Self::at(Path::new(mount).join(format!("reaper-test-bench-{}-{name}", std::process::id())))
    }

    pub(crate) fn child(&self, name: &str) -> Result<Self> {
        Self::at(self.path.join(name))
    }

    fn at(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    /// The last part of its path.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn cgroup(&self) -> Result<CgroupRef> {
        Ok(CgroupRef { hierarchy: Hierarchy(0), id: CgroupId(fs::metadata(&self.path)?.ino()) })
    }

    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).context("cannot enter a cgroup")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for _ in 0..200 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}
