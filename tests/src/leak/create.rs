//! `runc create` dies between the creation of the cgroup and `state.json`.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Crash;
use crate::containerd::{Containerd, Rootfs};
use crate::node::CgroupView;
use crate::runc::{Faults, Hook};
use crate::wait::wait_until;

const LIMIT: Duration = Duration::from_secs(10);

// === impl Containerd ===

impl Containerd {
    pub(super) fn crash_create(&self, id: &str, crash: Crash) -> Result<()> {
        let cgroup = self.cgroup(id);
        let frozen = crash != Crash::ThawedCreate;
        let (file, value) = match self.node().view() {
            CgroupView::V1 => ("freezer.state", "FROZEN"),
            CgroupView::V2 => ("cgroup.freeze", "1"),
        };
        let file = self.node().inner_cgroup_path(&format!("{cgroup}/{file}"))?;
        let hook = Hook::KillCreate { freeze: frozen.then_some((file, value)) };
        let faults = Faults { hook: Some(hook), ..Faults::default() };
        let rootfs = match crash {
            Crash::FrozenCreate => Rootfs::Directory,
            Crash::FrozenCreateBusyRootfs
            | Crash::ThawedCreate
            | Crash::OrphanedChildren
            | Crash::NestedTree => Rootfs::Image,
        };
        let run = self.run(id, rootfs, &faults, &["sleep", "100000"])?;
        ensure!(run.code == Some(1), "ctr run of {id} should fail: {run:?}");
        if !frozen {
            // The init reads the end of its pipe and exits.
            wait_until(&format!("the end of the init of {id}"), LIMIT, || {
                Ok(self.node().cgroups().members(&cgroup)?.is_empty())
            })?;
        }
        Ok(())
    }
}
