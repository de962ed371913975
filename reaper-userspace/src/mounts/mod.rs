//! Mounts below a directory in the mount namespace of a process, who else still has them, and the unmount.
//!
//! [`below`], [`holders`] and [`users()`] read; [`unmount()`] is the one effect and only `reap` calls it. A mount is named by its
//! ids, its target and its namespace; a namespace is named by an incarnation of a process in it and held by
//! descriptors while it is used, as its inode number is reused at once.
//!
//! # Invariants
//! - Nothing is said of a namespace whose process is not the incarnation that was asked for.
//! - An unmount never detaches lazily and never follows a symbolic link in the last component: a busy mount stays.
//! - Only the mount table says that a mount is gone. EINVAL and ENOENT of `umount2` are also said for mounts that
//!   are locked or cannot be reached.
//! - Nothing here hangs on a dead filesystem: the parts that touch one run on a thread that can be left behind.

mod error;
mod identity;
mod namespace;
mod table;
mod unmount;
mod users;

pub use error::MountsError;
pub use table::{Holders, below, holders};
pub use unmount::{Unmount, unmount};
pub use users::users;
