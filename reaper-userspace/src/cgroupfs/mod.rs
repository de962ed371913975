//! cgroups of v1, hybrid and v2 nodes, exactly: which hierarchies are mounted, what is in a cgroup, and the few
//! writes that end one.
//!
//! [`Layout`] finds the hierarchies, [`HierarchyMount`] opens a path in one, [`CgroupDir`] is one open cgroup,
//! [`HierarchyMount::tree`] reads a subtree into facts. [`CgroupControl`] is the write half; only `reap` calls it.
//! Nothing here knows containers, and nothing reads `/proc/PID`: start times come from the caller.
//!
//! # Invariants
//! - A path is used once, to open; everything after that is relative to the held directory. The directory of a
//!   removed cgroup never denotes its successor of the same name: every access through it fails with ENOENT or
//!   ENODEV (`fs/kernfs`). So a directory whose inode was checked pins exactly that cgroup, and
//!   `open_by_handle_at`, which needs `CAP_DAC_READ_SEARCH`, would add nothing.
//! - Opening cannot leave the hierarchy: `openat2` below the held root, without symbolic links or other mounts.
//! - "Gone" is said only for an errno that says so, see the table.
//!
//! # What an errno means
//! | operation | errno | meaning |
//! |---|---|---|
//! | open a directory | ENOENT, ENODEV | no such cgroup now |
//! | | EXDEV, ELOOP, ENOTDIR | not a cgroup of this hierarchy: no answer |
//! | open a file | ENOENT and `cgroup.procs` is there | this kernel, hierarchy or root has no such file |
//! | | ENOENT and `cgroup.procs` is not there; ENODEV | the cgroup is gone |
//! | read or write an open file | ENODEV | the cgroup is gone |
//! | read `cgroup.procs` | EOPNOTSUPP | threaded: act at the domain, no answer here |
//! | rmdir | ENOENT, ENODEV | gone already |
//! | | EBUSY | has tasks (exiting ones too, from Linux 7.0) or children: again later |
//! | any | EINTR | again |

mod control;
mod dir;
mod error;
mod freezer;
mod hierarchy;
mod layout;
mod parse;
mod walk;
mod watch;

pub use control::{CgroupControl, Child, Doomed};
pub use dir::CgroupDir;
pub use error::CgroupfsError;
pub use hierarchy::{HierarchyMount, Reopened};
pub use layout::{Layout, LayoutMode, LayoutWarning};
pub use watch::EventsWatch;
