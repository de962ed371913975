//! Packages of Debian.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::{say, succeed};

/// Asked by `invoke-rc.d` and `deb-systemd-invoke` before a service is started; 101 means no.
const POLICY: &str = "/usr/sbin/policy-rc.d";
const NO_SERVICES: &str =
    "#!/bin/sh\n# cgroup-reaper: services of the packages being installed stay off\nexit 101\n";

/// Installs packages if there are any, or says what to type.
pub(super) fn install(packages: &[String]) -> anyhow::Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let wanted = packages.join(" ");
    if !Path::new("/etc/debian_version").exists() {
        bail!("missing, by the names of Debian's packages: {wanted}\n{}", super::toolchain::ELSEWHERE);
    }
    if fs::metadata("/proc/self")?.uid() != 0 {
        bail!("missing; type as root:\n  apt-get update && apt-get install --no-install-recommends {wanted}");
    }
    say(&format!("missing: {wanted}"));
    let _quiet = NoServices::enter()?;
    succeed(apt_get().arg("update"))?;
    // A package that can be had only at the price of another one is not worth it.
    succeed(apt_get().args(["install", "--yes", "--no-install-recommends", "--no-remove"]).args(packages))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
    command
}

/// While this lives, installed services are not started: a second containerd is the last thing a node needs.
struct NoServices {
    ours: bool,
}

// === impl NoServices ===

impl NoServices {
    /// A policy of the administrator's stays as it is; one of ours that an interrupted run has left is taken over.
    #[expect(clippy::disallowed_methods, reason = "a file of this guard's own")]
    fn enter() -> anyhow::Result<Self> {
        let foreign =
            Path::new(POLICY).exists() && fs::read_to_string(POLICY).ok().as_deref() != Some(NO_SERVICES);
        if !foreign {
            fs::write(POLICY, NO_SERVICES).with_context(|| format!("cannot write {POLICY}"))?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { ours: !foreign })
    }
}

impl Drop for NoServices {
    #[expect(clippy::disallowed_methods, reason = "a file of this guard's own")]
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            say(&format!("remove {POLICY} by hand, or no service will start: {error}"));
        }
    }
}
