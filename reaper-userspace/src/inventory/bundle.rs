//! Whether two looks saw the same bundle.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Tracked;
use super::identity::servers;
use crate::fact::BundleSighting;
use crate::ident::ProcessKey;

/// What must stay the same from look to look of a bundle for their ages to add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleIdentity {
    /// Device and inode of the bundle's directory.
    directory: (u64, u64),
    /// Mount ids, and the ids that are never given twice where the kernel tells them.
    mounts: BTreeSet<(u32, Option<u64>)>,
    servers: BTreeSet<ProcessKey>,
}

// === impl BundleIdentity ===

impl BundleIdentity {
    /// The identity of what a sighting saw. What it did not see is guarded there and then.
    pub fn of(sighting: &BundleSighting) -> Self {
        let mounts = sighting.mounts.found().into_iter().flatten();
        Self {
            directory: sighting.directory.found().map_or((0, 0), |id| (id.device, id.inode)),
            mounts: mounts.map(|mount| (mount.mount_id, mount.unique_id)).collect(),
            servers: servers(&sighting.runtimes),
        }
    }
}

impl Tracked for BundleSighting {
    type Identity = BundleIdentity;

    fn identity(&self) -> BundleIdentity {
        BundleIdentity::of(self)
    }

    /// The same directory with the same mounts or fewer: a mount that was added is somebody's work.
    fn continues(&self, earlier: &BundleIdentity) -> bool {
        let now = self.identity();
        now.directory == earlier.directory
            && now.servers == earlier.servers
            && now.mounts.is_subset(&earlier.mounts)
    }
}
