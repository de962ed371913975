//! Whether two looks saw the same run of a unit, or the same misplaced init.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Tracked;
use super::identity::servers;
use crate::fact::{MisplacedSighting, UnitSighting};
use crate::ident::{CgroupPath, InvocationId, ProcessKey, UnitName};

/// What must stay the same from look to look of a failed scope for their ages to add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitIdentity {
    name: UnitName,
    invocation: InvocationId,
    servers: BTreeSet<ProcessKey>,
}

/// The same for a container that is not in its cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MisplacedIdentity {
    named: CgroupPath,
    init: ProcessKey,
}

// === impl UnitSighting ===

impl Tracked for UnitSighting {
    type Identity = UnitIdentity;

    fn identity(&self) -> UnitIdentity {
        let (name, invocation) = (self.unit.name.clone(), self.unit.invocation);
        UnitIdentity { name, invocation, servers: servers(&self.runtimes) }
    }

    fn continues(&self, earlier: &UnitIdentity) -> bool {
        self.identity() == *earlier
    }
}

// === impl MisplacedSighting ===

impl Tracked for MisplacedSighting {
    type Identity = MisplacedIdentity;

    fn identity(&self) -> MisplacedIdentity {
        MisplacedIdentity { named: self.named.clone(), init: self.init }
    }

    fn continues(&self, earlier: &MisplacedIdentity) -> bool {
        self.identity() == *earlier
    }
}
