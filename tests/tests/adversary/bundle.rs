//! The leak's rootfs, which is a mount, and what others mount beside and over it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use reaper_userspace::fact::MountFact;
use reaper_userspace::ident::{Lookup, ProcessKey, Tgid};
use reaper_userspace::{mounts, procfs};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Bundle {
    dir: TempDir,
    /// Whoever's mounts are looked at: this process.
    own: ProcessKey,
    covered: bool,
}

// === impl Bundle ===

impl Bundle {
    /// With the rootfs of somebody else, which must stay mounted.
    pub(crate) fn new() -> Result<Self> {
        let Lookup::Found(start) = procfs::start_of(Tgid::INIT) else { bail!("no start of this process") };
        let this =
            Self { dir: tempfile::tempdir()?, own: ProcessKey { tgid: Tgid::INIT, start }, covered: false };
        for name in ["leaks", "others", "victim"] {
            fs::create_dir(this.dir.path().join(name))?;
        }
        fs::write(this.dir.path().join("others/here"), "")?;
        fs::create_dir(this.victim().join("rootfs"))?;
        bind(&this.dir.path().join("others"), &this.victim().join("rootfs"))?;
        Ok(this)
    }

    pub(crate) fn set(&mut self) -> Result<()> {
        self.covered = false;
        fs::create_dir_all(self.rootfs())?;
        bind(&self.dir.path().join("leaks"), &self.rootfs())
    }

    /// What a look finds.
    pub(crate) fn mounts(&self) -> Lookup<Vec<MountFact>> {
        mounts::below(self.own, &self.rootfs(), &procfs::start_of)
    }

    /// The bundle is a symbolic link to another one from now on.
    pub(crate) fn swap(&self) -> bool {
        let bundle = self.dir.path().join("bundle");
        fs::rename(&bundle, self.dir.path().join("away")).is_ok() && symlink(self.victim(), bundle).is_ok()
    }

    /// Something else is mounted over it.
    pub(crate) fn cover(&mut self) -> bool {
        let rootfs = self.rootfs();
        let real = !self.dir.path().join("bundle").is_symlink() && rootfs.is_dir();
        let covered = real && bind(&self.dir.path().join("others"), &rootfs).is_ok();
        self.covered |= covered;
        covered
    }

    pub(crate) fn judge(&self, failures: &mut Vec<String>) {
        if !self.victim().join("rootfs/here").exists() {
            failures.push("somebody else's rootfs was unmounted".to_owned());
        }
        let place =
            if self.dir.path().join("away").exists() { "away/rootfs/here" } else { "bundle/rootfs/here" };
        if self.covered && !self.dir.path().join(place).exists() {
            failures.push("what covered the rootfs was unmounted".to_owned());
        }
    }

    /// Everything but the other's rootfs goes.
    pub(crate) fn clear(&self) -> Result<()> {
        let bundle = self.dir.path().join("bundle");
        if bundle.is_symlink() {
            fs::remove_file(&bundle)?;
        }
        for dir in [bundle, self.dir.path().join("away")] {
            while umount2(&dir.join("rootfs"), MntFlags::MNT_DETACH).is_ok() {}
            let _there = fs::remove_dir(dir.join("rootfs"));
            let _there = fs::remove_dir(dir);
        }
        Ok(())
    }

    fn rootfs(&self) -> PathBuf {
        self.dir.path().join("bundle/rootfs")
    }

    fn victim(&self) -> PathBuf {
        self.dir.path().join("victim")
    }
}

/// A directory with a mount below it cannot be removed.
impl Drop for Bundle {
    fn drop(&mut self) {
        let _unmounted = umount2(&self.victim().join("rootfs"), MntFlags::MNT_DETACH);
    }
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    let none = None::<&str>;
    mount(Some(from), to, none, MsFlags::MS_BIND, none).with_context(|| format!("bind {}", to.display()))
}
