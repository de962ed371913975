//! What a private containerd left on the machine: the question every fixture must answer with "nothing".

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cgroup::Inventory;
use crate::node::mounts_below;
use crate::process::{is_gone, processes_naming};

/// The marks by which the things of one containerd are recognised, valid after it is gone.
#[derive(Clone, Debug)]
pub struct Traces {
    name: String,
    dir: PathBuf,
    files: Vec<PathBuf>,
}

// === impl Traces ===

impl Traces {
    pub(crate) const fn new(name: String, dir: PathBuf, files: Vec<PathBuf>) -> Self {
        Self { name, dir, files }
    }

    /// One line for each cgroup, mount, process and file that is still there.
    pub fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        left.extend(
            Inventory::take()?.naming(&self.name).iter().map(|dir| format!("cgroup {}", dir.display())),
        );
        left.extend(mounts_below(&self.dir)?.iter().map(|point| format!("mount {}", point.display())));
        for process in processes_naming(&[&self.dir.to_string_lossy()])? {
            left.push(format!("process {} {}", process.pid, process.comm()));
        }
        let files = self.files.iter().filter(|path| path.symlink_metadata().is_ok());
        left.extend(files.map(|path| format!("file {}", path.display())));
        Ok(left)
    }

    /// True if the node's directory is still there (it stays when the node was kept).
    pub fn dir_exists(&self) -> bool {
        self.dir.exists()
    }

    /// Removes the state of runc and the sockets of shims, which are outside of the node's directory.
    pub(crate) fn remove_files(&self) -> Result<()> {
        self.files.iter().try_for_each(|path| remove(path))
    }
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if !is_gone(&error) => Err(error).with_context(|| format!("remove {}", path.display())),
        _ => Ok(()),
    }
}
