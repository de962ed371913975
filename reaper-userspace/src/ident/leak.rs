//! Short names for leaks, for people to type.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{CgroupPath, ContainerKey, UnitName};

/// A short name such as `cg-5f0c9a1be2`: the same for the same container and path, whoever computes it,
/// so that `scan`, `explain`, `reap` and the audit log of different processes agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeakId(String);

// === impl LeakId ===

impl LeakId {
    /// The name of what leaked at a container's cgroup.
    pub fn of(container: &ContainerKey, cgroup: &CgroupPath) -> Self {
        Self::hashed("cg", container, cgroup.as_path())
    }

    /// The name of a container's bundle.
    pub fn of_bundle(container: &ContainerKey, bundle: &Path) -> Self {
        Self::hashed("bu", container, bundle)
    }

    /// The name of a container's failed scope.
    pub fn of_unit(container: &ContainerKey, unit: &UnitName) -> Self {
        Self::hashed("un", container, Path::new(unit.as_str()))
    }

    /// The name of a container that is not in its cgroup.
    pub fn of_misplaced(container: &ContainerKey, named: &CgroupPath) -> Self {
        Self::hashed("mp", container, named.as_path())
    }

    fn hashed(kind: &str, container: &ContainerKey, path: &Path) -> Self {
        let mut hash = Sha256::new();
        // No part can hold a newline, so the parts cannot run into each other.
        for part in [container.namespace.as_str().as_bytes(), container.id.as_str().as_bytes()] {
            hash.update(part);
            hash.update(b"\n");
        }
        hash.update(path.as_os_str().as_bytes());
        let number =
            hash.finalize().iter().take(5).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Self(format!("{kind}-{number:010x}"))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeakId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
