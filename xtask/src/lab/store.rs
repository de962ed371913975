//! Where the lab keeps what it builds, `TARGET/lab`, and the lock that lets one machine run at a time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::build;
use crate::setup::say;

/// The directory of the lab.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
}

// === impl Store ===

impl Store {
    pub(super) fn open() -> anyhow::Result<Self> {
        let dir = build::target_directory()?.join("lab");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self { dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A directory of this name that exists.
    pub(super) fn make(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// An emptied directory of this name.
    #[expect(clippy::disallowed_methods, reason = "a directory of the lab's own; nothing is mounted in it")]
    pub(super) fn make_anew(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.dir.join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        self.make(name)
    }

    #[expect(clippy::disallowed_methods, reason = "a directory of the lab's own; nothing is mounted in it")]
    pub(super) fn remove(&self, name: &str) -> anyhow::Result<()> {
        let dir = self.dir.join(name);
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Whether this was built by this recipe, completely.
    pub(super) fn is_current(&self, name: &str, recipe: &str) -> bool {
        fs::read_to_string(self.stamp(name)).is_ok_and(|built| built == recipe)
    }

    /// Says that it was.
    #[expect(clippy::disallowed_methods, reason = "a file of the lab's own")]
    pub(super) fn stamp_as(&self, name: &str, recipe: &str) -> anyhow::Result<()> {
        let stamp = self.stamp(name);
        fs::write(&stamp, recipe).with_context(|| format!("cannot write {}", stamp.display()))
    }

    fn stamp(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("recipe")
    }

    /// Held while something is built or runs: the smallest machine has two processors.
    pub(super) fn lock(&self) -> anyhow::Result<File> {
        let path = self.dir.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        if file.try_lock().is_err() {
            say("another lab is at work; waiting for it");
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(file)
    }
}
