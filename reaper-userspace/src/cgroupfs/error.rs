//! What can fail in cgroupfs, and what a caller may branch on.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::ident::{CgroupPath, Lookup};
use crate::kernel::{MembershipError, MountinfoError, ReadError, chain};

/// One failed operation on cgroupfs.
#[derive(Debug, thiserror::Error)]
pub enum CgroupfsError {
    /// The mount table or our own memberships could not be read.
    #[error("find the mounted hierarchies")]
    Discover(#[source] ReadError),
    /// The mount table is not what kernels write.
    #[error("find the mounted hierarchies")]
    MountTable(#[source] MountinfoError),
    /// `/proc/PID/cgroup` is not what kernels write.
    #[error("find the mounted hierarchies")]
    Memberships(#[source] MembershipError),
    /// A root that was asked for does not exist.
    #[error("resolve cgroup root {root:?}")]
    Root {
        /// As configured.
        root: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A root that was asked for has no cgroup filesystem at or below it.
    #[error("no cgroup filesystem is mounted at or below {root:?}")]
    NoHierarchy {
        /// As configured.
        root: PathBuf,
    },
    /// The root directory of a hierarchy could not be opened.
    #[error("open the hierarchy mounted at {path:?}")]
    OpenRoot {
        /// Mount point.
        path: PathBuf,
        /// Cause.
        source: Errno,
    },
    /// A mounted v1 hierarchy has no line in `/proc/PID/cgroup`, so its number is not known.
    #[error("the hierarchy mounted at {path:?} with options {options:?} has no number")]
    Unnumbered {
        /// Mount point.
        path: PathBuf,
        /// Options of its superblock.
        options: String,
    },
    /// A cgroup's directory could not be opened.
    #[error("open cgroup {path}")]
    Open {
        /// The cgroup.
        path: CgroupPath,
        /// Cause.
        source: Errno,
    },
    /// A cgroup's children could not be listed.
    #[error("list the children of cgroup {path}")]
    List {
        /// The cgroup.
        path: CgroupPath,
        /// Cause.
        source: Errno,
    },
    /// A child has a name that no cgroup can have.
    #[error("list the children of cgroup {path}")]
    ChildName {
        /// The parent.
        path: CgroupPath,
        /// Cause.
        source: crate::ident::CgroupPathError,
    },
    /// Deeper than is read.
    #[error("cgroup {path} is more than {levels} levels below the tree's root")]
    TooDeep {
        /// The first cgroup that is too deep.
        path: CgroupPath,
        /// The bound.
        levels: usize,
    },
    /// Larger than is read.
    #[error("the tree has more than {cgroups} cgroups, one of them {path}")]
    TooMany {
        /// The first cgroup that is too many.
        path: CgroupPath,
        /// The bound.
        cgroups: usize,
    },
    /// A file of a cgroup could not be read.
    #[error("read {file} of cgroup {path}")]
    Read {
        /// Name of the file.
        file: &'static str,
        /// The cgroup.
        path: CgroupPath,
        /// Cause.
        source: ReadError,
    },
    /// The cgroup is there, the file is not: a hierarchy's root, another hierarchy, or an older kernel.
    #[error("cgroup {path} has no {file}")]
    NoFile {
        /// Name of the file.
        file: &'static str,
        /// The cgroup.
        path: CgroupPath,
    },
    /// A file says something that kernels do not write.
    #[error("{file} of cgroup {path} says {content:?}")]
    Content {
        /// Name of the file.
        file: &'static str,
        /// The cgroup.
        path: CgroupPath,
        /// The first bytes of it.
        content: String,
    },
    /// `cgroup.procs` lists 0: a process that is not in our PID namespace.
    #[error("cgroup {path} has a member outside this PID namespace")]
    ForeignMember {
        /// The cgroup.
        path: CgroupPath,
    },
    /// A file of a cgroup could not be written.
    #[error("write {value:?} to {file} of cgroup {path}")]
    Write {
        /// Name of the file.
        file: &'static str,
        /// What was written.
        value: &'static str,
        /// The cgroup.
        path: CgroupPath,
        /// Cause.
        source: Errno,
    },
    /// The hierarchy has no freezer.
    #[error("cgroup {path} is not in a hierarchy with a freezer")]
    NoFreezer {
        /// The cgroup.
        path: CgroupPath,
    },
    /// A cgroup could not be removed.
    #[error("remove cgroup {path}")]
    Remove {
        /// The cgroup.
        path: CgroupPath,
        /// Cause.
        source: Errno,
    },
    /// Waiting for a change of `cgroup.events` failed.
    #[error("wait for cgroup.events of {path}")]
    Wait {
        /// The cgroup.
        path: CgroupPath,
        /// Cause.
        source: Errno,
    },
}

// === impl CgroupfsError ===

impl CgroupfsError {
    /// True if the kernel said that the cgroup does not exist (any more).
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOENT | Errno::NODEV))
    }

    /// True if the cgroup still has tasks or children: worth another try.
    pub fn is_busy(&self) -> bool {
        self.errno() == Some(Errno::BUSY)
    }

    /// True if the guard on rmdir refused: the name is another cgroup's by now.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Remove { source: Errno::PERM, .. })
    }

    /// True if the cgroup is threaded and only its domain can be asked or killed.
    pub fn is_threaded(&self) -> bool {
        self.errno() == Some(Errno::OPNOTSUPP)
    }

    /// True if this kernel, this hierarchy or a hierarchy's root lacks what was asked for.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoFile { .. } | Self::NoFreezer { .. })
    }

    /// The kernel's answer about a cgroup; `None` for everything that is not about a single cgroup.
    const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { source, .. }
            | Self::List { source, .. }
            | Self::Write { source, .. }
            | Self::Remove { source, .. }
            | Self::Wait { source, .. } => Some(*source),
            Self::Read { source, .. } => source.errno(),
            Self::Discover(_)
            | Self::MountTable(_)
            | Self::Memberships(_)
            | Self::Root { .. }
            | Self::NoHierarchy { .. }
            | Self::OpenRoot { .. }
            | Self::Unnumbered { .. }
            | Self::ChildName { .. }
            | Self::TooDeep { .. }
            | Self::TooMany { .. }
            | Self::NoFile { .. }
            | Self::Content { .. }
            | Self::ForeignMember { .. }
            | Self::NoFreezer { .. } => None,
        }
    }
}

/// Turns a reader's result into an answer: gone is [`Lookup::NotFound`], every other failure is no answer.
pub(super) fn answer<T>(result: Result<T, CgroupfsError>) -> Lookup<T> {
    match result {
        Ok(value) => Lookup::Found(value),
        Err(error) if error.is_gone() => Lookup::NotFound,
        Err(error) => Lookup::Unavailable(chain(&error)),
    }
}
