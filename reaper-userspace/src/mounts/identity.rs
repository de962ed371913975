//! Which mount a path leads to.
//!
//! Mount ids are reused at once: unmounting and mounting again at the same target usually gives the same id and the
//! same device number. Only the 64-bit id of Linux 6.8 is an identity.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{Errno, retry_on_intr};

/// `STATX_MNT_ID_UNIQUE` of `linux/stat.h`, since Linux 6.8.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Id of the visible mount at a target, as in the mount table; `None` before Linux 5.8 and where the path leads
/// nowhere.
pub(super) fn visible_id(root: BorrowedFd<'_>, target: &Path) -> Result<Option<u32>, Errno> {
    let id = mount_id(root, target, StatxFlags::MNT_ID)?;
    Ok(id.map(|id| u32::try_from(id).unwrap_or(u32::MAX)))
}

/// Id of the visible mount at a target that no other mount of this boot gets; `None` before Linux 6.8 and where
/// the path leads nowhere.
pub(super) fn unique_id(root: BorrowedFd<'_>, target: &Path) -> Result<Option<u64>, Errno> {
    mount_id(root, target, MNT_ID_UNIQUE)
}

/// Asks the kernel and not the filesystem, which may be dead.
fn mount_id(root: BorrowedFd<'_>, target: &Path, kind: StatxFlags) -> Result<Option<u64>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let below = match target.strip_prefix("/") {
        Ok(below) if !below.as_os_str().is_empty() => below,
        _ => Path::new("."),
    };
    match retry_on_intr(|| statx(root, below, flags, kind)) {
        Ok(found) => {
            Ok(StatxFlags::from_bits_retain(found.stx_mask).contains(kind).then_some(found.stx_mnt_id))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
