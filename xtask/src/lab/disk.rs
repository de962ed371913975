//! Builds a node's disk: Debian's packages in a directory, a unit that runs the job, and an image of both.
//!
//! Kept: kernel, initial RAM disk and image. The directory goes: the image is the cheaper of the two to boot from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::job;
use super::node::Disk;
use super::store::Store;
use crate::cargo::shown;
use crate::setup::say;

pub(super) const MIRROR: &str = "http://deb.debian.org/debian";

/// Beside what a minimal Debian has; `ctr` comes with containerd.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,kmod,procps,iproute2,ca-certificates,busybox-static,\
                        containerd,runc";
/// Installed in a second step: one step alone lets sid's resolver pick another maker of initial RAM disks.
const KERNEL: [&str; 2] = ["initramfs-tools", "linux-image-cloud-amd64"];
/// With room for what runs leave; the file is sparse.
const SIZE: &str = "2500M";

/// What was built.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
    pub(super) image: PathBuf,
}

pub(super) fn files(store: &Store, disk: &Disk) -> Files {
    let dir = store.dir().join(disk.name);
    Files { kernel: dir.join("vmlinuz"), initrd: dir.join("initrd.img"), image: dir.join("disk.img") }
}

/// Everything that the result depends on, as text: compared with what was built.
fn recipe(disk: &Disk) -> String {
    let Disk { suite, kernel_suite, .. } = disk;
    format!("{suite} {kernel_suite} {PACKAGES} {} {SIZE}\n{}", KERNEL.join(","), job::UNIT)
}

pub(super) fn is_built(store: &Store, disk: &Disk) -> bool {
    store.is_current(disk.name, &recipe(disk))
}

pub(super) fn ensure(store: &Store, disk: &Disk) -> anyhow::Result<()> {
    let _lock = store.lock()?;
    if is_built(store, disk) {
        return Ok(());
    }
    let dir = store.make_anew(disk.name)?;
    let root = dir.join("root");
    let log = dir.join("build.log");
    say(&format!("building {}: packages of {} (a minute)", disk.name, disk.suite));
    quietly(debootstrap().arg(format!("--include={PACKAGES}")).arg(disk.suite).arg(&root).arg(MIRROR), &log)?;
    say(&format!("building {}: kernel of {}", disk.name, disk.kernel_suite));
    install_kernel(&root, disk, &log)?;
    install_job(&root)?;
    say(&format!("building {}: image", disk.name));
    pack(&root, &files(store, disk), &log)?;
    store.remove(&format!("{}/root", disk.name))?;
    store.stamp_as(disk.name, &recipe(disk))
}

pub(super) fn debootstrap() -> Command {
    let mut command = Command::new("debootstrap");
    command.arg("--variant=minbase").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Runs a command whose output is only of interest when it fails.
pub(super) fn quietly(command: &mut Command, log: &Path) -> anyhow::Result<()> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{}: {status}; its last words:\n{}", shown(command), last_lines(log, 15));
    }
    Ok(())
}

/// The end of a text file that may hold anything.
pub(super) fn last_lines(file: &Path, count: usize) -> String {
    let bytes = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

/// Also where the suite is the release's own: one way for all.
fn install_kernel(root: &Path, disk: &Disk, log: &Path) -> anyhow::Result<()> {
    let source = format!("deb {MIRROR} {} main\n", disk.kernel_suite);
    write(&root.join("etc/apt/sources.list.d/kernel.list"), &source)?;
    let script = r#"mount -t proc proc "$0/proc"; root=$0; suite=$1; shift
        chroot "$root" apt-get -q -o Acquire::Check-Valid-Until=false update
        exec chroot "$root" apt-get -q -y --no-install-recommends -t "$suite" install "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]);
    command.arg(root).arg(disk.kernel_suite).args(KERNEL).env("DEBIAN_FRONTEND", "noninteractive");
    quietly(&mut command, log)
}

fn install_job(root: &Path) -> anyhow::Result<()> {
    write(&root.join("etc/systemd/system/lab.service"), job::UNIT)?;
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    std::os::unix::fs::symlink("/etc/systemd/system/lab.service", wants.join("lab.service"))?;
    write(&root.join("etc/hostname"), "lab\n")
}

#[expect(clippy::disallowed_methods, reason = "a file of the node's disk")]
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn pack(root: &Path, files: &Files, log: &Path) -> anyhow::Result<()> {
    for (start, place) in [("vmlinuz-", &files.kernel), ("initrd.img-", &files.initrd)] {
        let boot = fs::read_dir(root.join("boot"))?.filter_map(Result::ok).map(|entry| entry.path());
        let is_it = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start));
        let found: Vec<PathBuf> = boot.filter(is_it).collect();
        let [one] = found.as_slice() else { bail!("not one {start}* was installed: {found:?}") };
        fs::copy(one, place).with_context(|| format!("cannot copy {}", one.display()))?;
    }
    quietly(
        Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(root).arg(&files.image).arg(SIZE),
        log,
    )
}
