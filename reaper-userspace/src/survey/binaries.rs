//! The runtimes' binaries on this node, by file identity.
//!
//! `runc init` waits for its start still executing the runtime. Its name says nothing: the process chooses `comm` and
//! argv, and runc 1.1 executes itself from a detached bind mount, whose exe link reads `/`. Device and inode are those
//! of the binary all the same; later versions use a sealed memfd, which is named; runc 1.2 and later an overlay of its
//! own over the binary's directory, detached as well (`libcontainer/dmz/overlayfs_linux.go:sealedOverlayfs`): its link
//! reads `/runc`, its device is the overlay's, and its inode is the binary's (seen: runc 1.3.6).

use std::collections::BTreeSet;
use std::path::Path;

use rustix::fs::stat;

use super::scene::Shim;
use crate::fact::{FileId, ProcessFact};
use crate::ident::Lookup;
use crate::procfs;

const NAMES: [&str; 3] = ["runc", "crun", "youki"];
const DIRECTORIES: [&str; 6] =
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/sbin", "/bin"];
/// Names of the memfds that runtimes execute themselves from: `/memfd:runc_cloned:/proc/self/exe (deleted)`.
const MEMFDS: [&str; 3] = ["/memfd:runc", "/memfd:crun", "/memfd:youki"];
/// Our own root directory, and the host's where we run in a container.
const ROOTS: [&str; 2] = ["/", "/proc/1/root"];

/// The binaries in the usual places, and beside the shims that run (k3s and rke2 bring their own).
pub(super) fn installed(shims: &[Shim<'_>]) -> BTreeSet<FileId> {
    let beside = shims.iter().filter_map(|shim| shim.process.exe.as_ref()?.parent());
    let places = DIRECTORIES.iter().map(Path::new).chain(beside);
    places.flat_map(|place| NAMES.map(|name| place.join(name))).flat_map(|path| identities(&path)).collect()
}

/// The binary that a container's options name.
pub(super) fn named(binary: &str) -> BTreeSet<FileId> {
    identities(Path::new(binary)).into_iter().collect()
}

/// What an absolute path leads to; a relative one is looked up in a `PATH` that is not ours, so it says nothing.
fn identities(path: &Path) -> Vec<FileId> {
    let Ok(below) = path.strip_prefix("/") else { return vec![] };
    let found = ROOTS.iter().filter_map(|root| stat(Path::new(root).join(below)).ok());
    found.map(|stat| FileId { device: stat.st_dev, inode: stat.st_ino }).collect()
}

/// Whether a process is an init that still executes one of the binaries.
pub(super) fn is_init(process: &ProcessFact, binaries: &BTreeSet<FileId>) -> bool {
    let from_memfd = process
        .exe
        .as_ref()
        .and_then(|exe| exe.to_str())
        .is_some_and(|exe| MEMFDS.iter().any(|memfd| exe.starts_with(memfd)));
    let is_binary = || match procfs::exe_file(process.key) {
        Lookup::Found(Some(file)) => binaries.contains(&file) || is_sealed(process, file, binaries),
        Lookup::Found(None) | Lookup::NotFound | Lookup::Unavailable(_) => false,
    };
    process.argv.get(1).is_some_and(|word| word == "init") && (from_memfd || is_binary())
}

/// Whether the file is one of the binaries seen through a runtime's own overlay. An overlay keeps the inode number of
/// what it shows where its layers are of one file system, and there the number is nobody else's.
fn is_sealed(process: &ProcessFact, file: FileId, binaries: &BTreeSet<FileId>) -> bool {
    let at_root =
        process.exe.as_deref().is_some_and(|exe| NAMES.iter().any(|name| exe == Path::new("/").join(name)));
    at_root
        && binaries.iter().any(|binary| binary.inode == file.inode)
        && procfs::exe_on_overlay(process.key) == Lookup::Found(Some(true))
}
