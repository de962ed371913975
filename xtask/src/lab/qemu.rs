//! The emulator, from a root of its own: the machine's packages stay as they are, and every machine runs the same
//! version.

use std::path::Path;
use std::process::Command;

use super::disk::{MIRROR, debootstrap, quietly};
use super::store::Store;
use crate::setup::say;

const NAME: &str = "qemu";
const RECIPE: &str = "bookworm qemu-system-x86 2";

pub(super) fn ensure(store: &Store) -> anyhow::Result<()> {
    let _lock = store.lock()?;
    if store.is_current(NAME, RECIPE) {
        return Ok(());
    }
    let root = store.make_anew(NAME)?.join("root");
    say("building the emulator's root (a minute)");
    quietly(
        debootstrap().args(["--include=qemu-system-x86", "bookworm"]).arg(&root).arg(MIRROR),
        &store.dir().join(NAME).join("build.log"),
    )?;
    std::fs::create_dir_all(root.join("lab"))?;
    store.stamp_as(NAME, RECIPE)
}

/// The emulator, which sees the store as `/lab` and dies with us. The mount is gone with the process.
pub(super) fn command(store: &Store) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "sh", "-ec"])
        .arg(r#"mount --bind "$0" "$1/lab"; root=$1; shift; exec chroot "$root" qemu-system-x86_64 "$@""#)
        .arg(store.dir())
        .arg(store.dir().join(NAME).join("root"));
    command
}

/// A file of the store as the emulator sees it.
pub(super) fn inside(store: &Store, file: &Path) -> String {
    let below = file.strip_prefix(store.dir()).unwrap_or(file);
    format!("/lab/{}", below.display())
}
