//! Refuses an rmdir of another directory than the one that the running thread said it would remove.
//!
//! `vfs_rmdir` asks with both directories locked, and what it then removes is what it asked about: for the thread that
//! said so, look and removal are one.
#![expect(unsafe_code, reason = "a map's value is reached by reference while others may change it")]

use aya_ebpf::programs::LsmContext;

use crate::kread::{self, Dentry};
use crate::maps::ARMED;

/// Whether the directory may go. Threads that said nothing may remove what they like.
pub(crate) fn may_remove(ctx: &LsmContext) -> bool {
    let thread = kread::current_thread();
    // SAFETY: only this thread changes its own entry, and it is here.
    let Some(armed) = (unsafe { ARMED.get(&thread) }) else { return true };
    // Arguments: the directory above, the entry, what programs before this one said.
    Dentry::arg(ctx, 1).inode_number() == Some(*armed)
}
