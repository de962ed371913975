//! A private view of the machine: a mount namespace with the wanted cgroup layout and a shared state directory.
//!
//! The state directory is a shared mount that the host's and the private mount namespace have in common, as on a
//! node with systemd: a rootfs mounted by a shim is seen by the host, and is copied into the mount namespace of
//! every later container, where a leaked init pins it (EBUSY for whoever unmounts it).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use tempfile::TempDir;

use crate::cgroup::{Cgroups, MountedHierarchy};

/// Which cgroup layout the containers of a node see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupView {
    /// The machine's own v1 or hybrid layout.
    V1,
    /// cgroup v2 alone.
    V2,
}

/// A private view of the machine, gone when dropped.
#[derive(Debug)]
pub struct Node {
    view: CgroupView,
    name: String,
    holder: Child,
    cgroups: Cgroups,
    cgroup_root: PathBuf,
    own_cgroup_mount: bool,
    // A slot so that `drop` can take it: it must go after the mounts inside it.
    dir: Option<TempDir>,
    path: PathBuf,
}

// === impl CgroupView ===

impl CgroupView {
    /// V2 where the kernel can mount it, else V1.
    pub fn preferred() -> Result<Self> {
        let known = fs::read_to_string("/proc/filesystems").context("read /proc/filesystems")?;
        let v2 = known.lines().any(|line| line.split_whitespace().next_back() == Some("cgroup2"));
        Ok(if v2 { Self::V2 } else { Self::V1 })
    }

    /// Whether this machine can show it.
    pub fn is_available(self) -> Result<bool> {
        match self {
            Self::V1 => Ok(Cgroups::mounted()?.hierarchies().iter().any(MountedHierarchy::is_freezer)),
            Self::V2 => Ok(Self::preferred()? == Self::V2),
        }
    }

    const fn script(self) -> &'static str {
        match self {
            Self::V1 => "echo ready && exec cat",
            // Private first: with shared mounts the host would lose its cgroups.
            Self::V2 => {
                "mount --make-rprivate /sys && umount -l /sys/fs/cgroup \
                 && mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo ready && exec cat"
            }
        }
    }
}

// === impl Node ===

impl Node {
    /// Makes the view. Needs root.
    pub fn new(view: CgroupView) -> Result<Self> {
        let name = unique_name()?;
        let dir = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir().context("directory")?;
        let path = dir.path().to_owned();
        for part in ["state", "root", "bin", "tmp", "cgroup2"] {
            fs::create_dir(path.join(part)).with_context(|| format!("mkdir {part}"))?;
        }
        share(&path.join("state"))?;
        let (holder, layout) = match layout(view, &path).and_then(|layout| Ok((hold(view, &path)?, layout))) {
            Ok(made) => made,
            Err(error) => {
                detach(&path.join("state"))?;
                detach(&path.join("cgroup2"))?;
                return Err(error);
            }
        };
        let Layout { cgroups, cgroup_root, own_mount } = layout;
        Ok(Self {
            view,
            name,
            holder,
            cgroups,
            cgroup_root,
            own_cgroup_mount: own_mount,
            dir: Some(dir),
            path,
        })
    }

    /// The layout.
    pub const fn view(&self) -> CgroupView {
        self.view
    }

    /// `reaper-` and a random part: unique on the machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's directory.
    pub fn dir(&self) -> &Path {
        &self.path
    }

    /// The directory containerd keeps its state in.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// The hierarchies that hold the containers of this node, where the host sees them.
    pub const fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// What the product is told as `--cgroup-root`: valid in the host's mount namespace.
    pub fn cgroup_root(&self) -> &Path {
        &self.cgroup_root
    }

    /// A file below the cgroup root as processes of this node see it.
    pub(crate) fn inner_cgroup_path(&self, file: &str) -> Result<PathBuf> {
        Ok(match self.view {
            CgroupView::V1 => self.cgroups.freezer()?.dir(file),
            CgroupView::V2 => Path::new("/sys/fs/cgroup").join(file.trim_start_matches('/')),
        })
    }

    /// A command that runs inside the node's mount namespace, with `/` as its working directory.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m", "--", program]);
        command.env("TMPDIR", self.path.join("tmp"));
        command
    }

    /// Keeps the directory (logs, records) when the node is dropped.
    pub fn keep(&mut self) {
        if let Some(dir) = self.dir.as_mut() {
            dir.disable_cleanup(true);
        }
    }

    fn undo(&mut self) -> Result<()> {
        self.holder.kill().context("end the holder of the mount namespace")?;
        self.holder.wait().context("wait for the holder")?;
        unmount_below(&self.state())?;
        detach(&self.state())?;
        if self.own_cgroup_mount {
            detach(&self.path.join("cgroup2"))?;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            // Removing the directory now could reach through a mount that is still there.
            self.keep();
            crate::report(&format!("node {} left in {}: {error:#}", self.name, self.path.display()));
        }
    }
}

struct Layout {
    cgroups: Cgroups,
    cgroup_root: PathBuf,
    own_mount: bool,
}

fn layout(view: CgroupView, dir: &Path) -> Result<Layout> {
    let mounted = Cgroups::mounted()?;
    match view {
        CgroupView::V1 => {
            ensure!(view.is_available()?, "no v1 freezer is mounted: this machine cannot show cgroup v1");
            Ok(Layout { cgroups: mounted, cgroup_root: PathBuf::from("/sys/fs/cgroup"), own_mount: false })
        }
        CgroupView::V2 => {
            let mut cgroups = mounted.only(|one| one.unified);
            let own_mount = cgroups.hierarchies().is_empty();
            if own_mount {
                let mount_point = dir.join("cgroup2");
                rustix::mount::mount("cgroup2", &mount_point, "cgroup2", MountFlags::empty(), None)
                    .context("mount cgroup2")?;
                cgroups = Cgroups::mounted()?.only(|one| one.unified);
            }
            let cgroup_root = cgroups.freezer()?.root.clone();
            Ok(Layout { cgroups, cgroup_root, own_mount })
        }
    }
}

/// Starts the process that keeps the mount namespace; it ends with its standard input, so with the caller.
fn hold(view: CgroupView, dir: &Path) -> Result<Child> {
    let log = fs::File::create(dir.join("namespace.log")).context("create namespace.log")?;
    let mut holder = Command::new("unshare")
        .args(["-m", "--propagation", "unchanged", "sh", "-c", view.script()])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("start unshare")?;
    let mut line = String::new();
    let stdout = holder.stdout.take().context("no pipe from the holder")?;
    let read = BufReader::new(stdout).read_line(&mut line);
    if read.is_ok() && line.trim_end() == "ready" {
        return Ok(holder);
    }
    holder.kill().context("end the holder of the mount namespace")?;
    holder.wait().context("wait for the holder")?;
    let said = fs::read_to_string(dir.join("namespace.log")).context("read namespace.log")?;
    anyhow::bail!("private mount namespace for {view:?}: {}", said.trim())
}

fn share(dir: &Path) -> Result<()> {
    rustix::mount::mount_bind(dir, dir).with_context(|| format!("bind {}", dir.display()))?;
    rustix::mount::mount_change(dir, MountPropagationFlags::SHARED)
        .with_context(|| format!("share {}", dir.display()))
}

/// Mount points at or below a directory, in the order of mounting.
pub(crate) fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(dir)).collect())
}

pub(crate) fn unmount_below(dir: &Path) -> Result<()> {
    for point in mounts_below(dir)?.iter().rev().filter(|point| *point != dir) {
        detach(point)?;
    }
    Ok(())
}

/// Detaches a mount; what is no mount point is no error.
fn detach(dir: &Path) -> Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("unmount {}", dir.display())),
    }
}

fn unique_name() -> Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("read a random uuid")?;
    let random: String = uuid.chars().filter(char::is_ascii_hexdigit).take(10).collect();
    Ok(format!("reaper-{random}"))
}
