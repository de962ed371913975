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

/// Id of the visible mount at a target, as in the mount table.
pub(super) fn visible_id(root: BorrowedFd<'_>, target: &Path) -> Result<u32, Errno> {
    mount_id(root, target, StatxFlags::MNT_ID)
        .and_then(|id| u32::try_from(id).map_err(|_too_large| Errno::OVERFLOW))
}

/// Id of the visible mount at a target that no other mount of this boot gets.
pub(super) fn unique_id(root: BorrowedFd<'_>, target: &Path) -> Result<u64, Errno> {
    mount_id(root, target, MNT_ID_UNIQUE)
}

/// Asks the kernel and not the filesystem, which may be dead. ENOSYS before Linux 5.8 (plain) and 6.8 (unique).
fn mount_id(root: BorrowedFd<'_>, target: &Path, kind: StatxFlags) -> Result<u64, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let below = target.strip_prefix("/").unwrap_or(target);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let found = retry_on_intr(|| statx(root, below, flags, kind))?;
    let told = StatxFlags::from_bits_retain(found.stx_mask).contains(kind);
    if told { Ok(found.stx_mnt_id) } else { Err(Errno::NOSYS) }
}
