//! A container whose creation takes long: in every respect like a half-created one, except that it is alive.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::containerd::{Containerd, Rootfs};
use crate::process::Incarnation;
use crate::runc::{Faults, Hook};
use crate::wait::{wait_for, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// A `ctr run` that waits in its `createRuntime` hook.
#[derive(Debug)]
pub struct CreateInFlight {
    /// The container's id.
    pub id: String,
    /// Its cgroup's path from the root of each hierarchy; it exists and holds the waiting init.
    pub cgroup: String,
    client: Child,
    go: PathBuf,
}

// === impl CreateInFlight ===

impl CreateInFlight {
    /// Lets the creation go on; returns the init once the container runs.
    pub fn finish(mut self, containerd: &Containerd) -> Result<Incarnation> {
        fs::write(&self.go, "").context("release the hook")?;
        let status = wait_for("the end of ctr run", LIMIT, || self.client.try_wait().context("wait"))?;
        ensure!(status.success(), "ctr run of {} ended with {status}", self.id);
        let task = containerd.tasks()?.remove(&self.id).context("no task after ctr run")?;
        ensure!(task.status == "RUNNING", "{} is {}", self.id, task.status);
        Incarnation::of(task.pid)?.context("init is gone")
    }
}

impl Drop for CreateInFlight {
    fn drop(&mut self) {
        // The containerd's own removal ends what the client started; the client is ours to wait for.
        if let Err(error) = self.client.kill().and_then(|()| self.client.wait().map(drop)) {
            crate::report(&format!("ctr run of {}: {error}", self.id));
        }
    }
}

// === impl Containerd ===

impl Containerd {
    /// Starts a creation that waits in its hook, for at most this long, with the cgroup made and init in it.
    pub fn create_in_flight(&self, label: &str, longest: Duration) -> Result<CreateInFlight> {
        let id = self.id(label);
        let go = self.node().dir().join(format!("bin/go-{id}"));
        let tenths = u32::try_from(longest.as_millis().div_ceil(100)).context("waits too long")?;
        let faults = Faults { hook: Some(Hook::Wait { until: go.clone(), tenths }), ..Faults::default() };
        let client = self
            .run_command(&id, Rootfs::Image, &faults, &["sleep", "100000"])?
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start ctr run")?;
        let cgroup = self.cgroup(&id);
        let flight = CreateInFlight { id, cgroup, client, go };
        // The wrapper that writes the hook names it too, before runc: only with the init placed is it the hook.
        wait_until("a waiting hook", LIMIT, || {
            let hook = format!("hook-{}", flight.id);
            let placed = !self.node().cgroups().members(&flight.cgroup)?.is_empty();
            Ok(placed && !crate::process::processes_naming(&[&hook])?.is_empty())
        })?;
        Ok(flight)
    }
}
