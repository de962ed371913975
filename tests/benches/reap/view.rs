//! One hierarchy to make leaks in.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MsFlags, mount};
use reaper_userspace::cgroupfs::Layout;
use reaper_userspace::ident::CgroupPath;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct View {
    pub(crate) name: &'static str,
    pub(crate) layout: Arc<Layout>,
    /// The leak's, in the hierarchy.
    pub(crate) path: CgroupPath,
    base: PathBuf,
    /// Where this process was.
    home: PathBuf,
    root: TempDir,
}

// === impl View ===

impl View {
    pub(crate) fn all() -> Result<[Self; 2]> {
        Ok([Self::new("v2", "cgroup2", None)?, Self::new("v1", "cgroup", Some("freezer"))?])
    }

    fn new(name: &'static str, kind: &str, options: Option<&str>) -> Result<Self> {
        let root = tempfile::tempdir()?;
        mount(Some("cgroup"), root.path(), Some(kind), MsFlags::empty(), options)
            .with_context(|| format!("mount {name}"))?;
        let layout = Layout::discover(&[root.path().to_owned()])?;
        let base = format!("reaper-bench-{}", std::process::id());
        let path = CgroupPath::try_from(PathBuf::from(format!("/{base}/leak")))?;
        let base = root.path().join(base);
        fs::create_dir(&base)?;
        let controllers = options.unwrap_or_default();
        let home = fs::read_to_string("/proc/self/cgroup")?
            .lines()
            .filter_map(|line| line.split_once(':')?.1.split_once(':'))
            .find_map(|(names, path)| (names == controllers).then(|| path.trim_start_matches('/').to_owned()))
            .context("no cgroup of our own")?;
        Ok(Self { name, layout: Arc::new(layout), path, base, home: root.path().join(home), root })
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.base.join("leak")
    }

    /// Moves this process, for what it forks.
    pub(crate) fn enter(&self) -> Result<()> {
        fs::create_dir(self.dir()).context("make the leak")?;
        move_to(&self.dir())
    }

    pub(crate) fn leave(&self) -> Result<()> {
        move_to(&self.home)
    }

    pub(crate) fn freeze(&self) -> Result<()> {
        self.set_freezer("FROZEN", "1")?;
        let (file, wanted) =
            if self.is_v1() { ("freezer.state", "FROZEN") } else { ("cgroup.events", "frozen 1") };
        let start = Instant::now();
        while !fs::read_to_string(self.dir().join(file))?.contains(wanted) {
            ensure!(start.elapsed() < PATIENCE, "the leak does not freeze");
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Removes what an act left.
    pub(crate) fn clear(&self) {
        let start = Instant::now();
        let _without = self.set_freezer("THAWED", "0");
        while self.dir().exists() && fs::remove_dir(self.dir()).is_err() && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }

    fn set_freezer(&self, v1: &str, v2: &str) -> Result<()> {
        let (file, value) = if self.is_v1() { ("freezer.state", v1) } else { ("cgroup.freeze", v2) };
        fs::write(self.dir().join(file), value).with_context(|| format!("write {file}"))
    }

    fn is_v1(&self) -> bool {
        self.name == "v1"
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _busy = fs::remove_dir(&self.base);
        let _mounted = nix::mount::umount2(self.root.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

fn move_to(dir: &std::path::Path) -> Result<()> {
    fs::write(dir.join("cgroup.procs"), "0").with_context(|| format!("enter {}", dir.display()))
}
