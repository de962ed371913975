//! The shim dies, and so does the `runc delete --force` by which containerd removes what a dead shim left.
//!
//! Order matters: a shim that sees its init end would kill the other processes itself (`ShouldKillAllOnExit` in
//! containerd's `cmd/containerd-shim-runc-v2/runc`), so the shim goes first.

use std::time::Duration;

use anyhow::Result;

use super::Crash;
use crate::containerd::Containerd;
use crate::live::Shape;
use crate::runc::Faults;
use crate::wait::wait_until;

const LIMIT: Duration = Duration::from_secs(20);

// === impl Containerd ===

impl Containerd {
    pub(super) fn crash_shim(&self, label: &str, crash: Crash) -> Result<()> {
        let host_pid = crash == Crash::OrphanedChildren;
        let faults = Faults { host_pid, delete_crashes: true, ..Faults::default() };
        let live = self.live_with(label, Shape::Several, &faults)?;
        if crash == Crash::NestedTree {
            self.nest(&live.cgroup)?;
        }
        self.shim(&live.id)?.kill()?;
        let bundle = self.bundle(&live.id);
        wait_until(&format!("containerd gives up {}", live.id), LIMIT, || {
            Ok(!bundle.exists() && !self.tasks()?.contains_key(&live.id))
        })?;
        live.init.kill()?;
        let survivors = if host_pid { 2 } else { 0 };
        wait_until(&format!("{survivors} processes left of {}", live.id), LIMIT, || {
            Ok(self.node().cgroups().members(&live.cgroup)?.len() == survivors)
        })
    }
}
