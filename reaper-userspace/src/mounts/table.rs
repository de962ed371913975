//! Reading mount tables.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::readlinkat;
use rustix::io::Errno;
use serde::Serialize;

use super::error::MountsError;
use super::identity::{unique_id, visible_id};
use super::namespace::{open_root, process_dir, verify};
use crate::fact::{MountFact, ProcessFact};
use crate::ident::{Lookup, ProcessKey, StartTicks, Tgid};
use crate::kernel::{MountEntry, chain, parse_mountinfo, read_at};

/// Far above the mount table of a node with thousands of containers.
const MOUNTINFO_LIMIT: u64 = 64 << 20;
/// So many holders are enough to tell.
const MAX_HOLDERS: usize = 64;

/// A mount table as one process or thread sees it.
#[derive(Debug)]
pub(super) struct Table(Vec<MountEntry>);

// === impl Table ===

impl Table {
    /// Reads `mountinfo` below a `/proc/PID` or `/proc/PID/task/TID` directory.
    pub(super) fn read(dir: BorrowedFd<'_>, process: ProcessKey) -> Result<Self, MountsError> {
        let text = read_at(dir, "mountinfo", MOUNTINFO_LIMIT)
            .map_err(|source| MountsError::Read { process, source })?;
        parse_mountinfo(&text).map(Self).map_err(|source| MountsError::Parse { process, source })
    }

    /// Ids of the mounts at exactly this target, the visible one last.
    pub(super) fn at(&self, target: &Path) -> Vec<u32> {
        self.0.iter().filter(|mount| mount.target == target).map(|mount| mount.mount_id).collect()
    }

    fn below(self, prefix: &Path) -> Vec<MountEntry> {
        let mut mounts = self.0;
        mounts.retain(|mount| mount.target.starts_with(prefix));
        // Stable: of several mounts at one target the covered ones stay before the visible one.
        mounts.sort_by_key(|mount| mount.target.components().count());
        mounts
    }

    fn has_below(&self, prefix: &Path) -> bool {
        self.0.iter().any(|mount| mount.target.starts_with(prefix))
    }
}

/// Mounts at or below a directory, outermost first, as this incarnation of a process sees them.
///
/// Never `NotFound`: no mounts is an empty list, and a process that is gone gives no answer. Targets are compared
/// by component and are relative to the process's root directory; one whose directory is gone ends with
/// `//deleted`.
pub fn below(
    namespace_of: ProcessKey,
    prefix: &Path,
    start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>,
) -> Lookup<Vec<MountFact>> {
    match read_below(namespace_of, prefix, start_of) {
        Ok(mounts) => Lookup::Found(mounts),
        Err(error) => Lookup::Unavailable(chain(&error)),
    }
}

fn read_below(
    namespace_of: ProcessKey,
    prefix: &Path,
    start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>,
) -> Result<Vec<MountFact>, MountsError> {
    absolute(prefix)?;
    let dir = process_dir(namespace_of)?;
    let root = open_root(dir.as_fd(), namespace_of)?;
    let table = Table::read(dir.as_fd(), namespace_of)?;
    verify(namespace_of, start_of)?;
    let fact = |mount: MountEntry| MountFact {
        mount_id: mount.mount_id,
        unique_id: unique_id_of(root.as_fd(), &mount),
        target: mount.target,
        namespace_of,
    };
    Ok(table.below(prefix).into_iter().map(fact).collect())
}

/// `None` also if the path leads to another mount than the table says.
fn unique_id_of(root: BorrowedFd<'_>, mount: &MountEntry) -> Option<u64> {
    let visible = visible_id(root, &mount.target).ok()? == mount.mount_id;
    visible.then(|| unique_id(root, &mount.target).ok())?
}

/// Who still has a mount: a hint for people, never a proof.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holders {
    /// Processes that see it, at most 64.
    pub processes: Vec<ProcessKey>,
    /// How many processes could not be looked into.
    pub unreadable: usize,
}

/// Processes that see a mount at or below a directory in another mount namespace than the given process's: they
/// can keep a rootfs busy that is unmounted everywhere else. Processes that end meanwhile are left out.
pub fn holders(prefix: &Path, outside: ProcessKey, processes: &[ProcessFact]) -> Lookup<Holders> {
    match read_holders(prefix, outside, processes) {
        Ok(holders) => Lookup::Found(holders),
        Err(error) => Lookup::Unavailable(chain(&error)),
    }
}

fn read_holders(
    prefix: &Path,
    outside: ProcessKey,
    processes: &[ProcessFact],
) -> Result<Holders, MountsError> {
    absolute(prefix)?;
    let own = namespace_name(&process_dir(outside)?, outside)?;
    // One table a namespace is enough, as long as its processes have one root directory.
    let mut known = HashMap::from([(own, false)]);
    let mut holders = Holders::default();
    for process in processes.iter().filter(|process| !process.kernel_thread).map(|process| process.key) {
        match holds(process, prefix, &mut known) {
            Ok(true) => holders.processes.push(process),
            Ok(false) => {}
            Err(error) if has_ended(&error) => {}
            Err(_) => holders.unreadable = holders.unreadable.saturating_add(1),
        }
        if holders.processes.len() >= MAX_HOLDERS {
            break;
        }
    }
    Ok(holders)
}

fn holds(
    process: ProcessKey,
    prefix: &Path,
    known: &mut HashMap<Vec<u8>, bool>,
) -> Result<bool, MountsError> {
    let dir = process_dir(process)?;
    let name = namespace_name(&dir, process)?;
    if let Some(holds) = known.get(&name) {
        return Ok(*holds);
    }
    let holds = Table::read(dir.as_fd(), process)?.has_below(prefix);
    known.insert(name, holds);
    Ok(holds)
}

/// `mnt:[INODE]`, a name that is good for one scan.
fn namespace_name(dir: &OwnedFd, process: ProcessKey) -> Result<Vec<u8>, MountsError> {
    readlinkat(dir, "ns/mnt", Vec::new())
        .map(CString::into_bytes)
        .map_err(|source| MountsError::Open { process, source })
}

/// EINVAL: a zombie has no namespaces any more (`fs/proc_namespace.c:mounts_open_common`).
fn has_ended(error: &MountsError) -> bool {
    let errno = if let MountsError::Read { source, .. } = error {
        source.errno()
    } else if let MountsError::Open { source, .. } = error {
        Some(*source)
    } else {
        None
    };
    matches!(errno, Some(Errno::NOENT | Errno::SRCH | Errno::INVAL))
}

pub(super) fn absolute(path: &Path) -> Result<(), MountsError> {
    if path.is_absolute() { Ok(()) } else { Err(MountsError::Relative { path: path.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(targets: &[&str]) -> Table {
        let line = |(id, target): (usize, &&str)| format!("{id} 1 0:1 / {target} rw - tmpfs t rw\n");
        let text: Vec<String> = targets.iter().enumerate().map(line).collect();
        Table(parse_mountinfo(text.concat().as_bytes()).unwrap())
    }

    #[test]
    fn what_is_below_is_told_by_component_and_outermost_first() {
        let mounts = table(&["/b/rootfs/a/b", "/b/rootfs2", "/b/rootfs", "/b", "/b/rootfs/a", "/b/rootfs"]);
        let ids: Vec<_> = mounts.below(Path::new("/b/rootfs")).into_iter().map(|m| m.mount_id).collect();
        assert_eq!(ids, [2, 5, 4, 0]);
    }

    #[test]
    fn mounts_at_one_target_keep_their_order() {
        assert_eq!(table(&["/x", "/y", "/x"]).at(Path::new("/x")), [0, 2]);
        assert_eq!(table(&["/x"]).at(Path::new("/x/y")), Vec::<u32>::new());
    }
}
