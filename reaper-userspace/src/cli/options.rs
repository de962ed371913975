//! Options that several commands share, from the user's words to values.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use jiff::SignedDuration;

use crate::daemon::engine::Engine;
use crate::daemon::memory::Memory;
use crate::daemon::trace::{RecordError, Recorder};
use crate::ident::{ContainerId, Namespace};
use crate::leak::LeakKind;
use crate::policy::{PathPattern, Policy};
use crate::survey::{Expected, Sources, Survey};

/// Where things are on this node.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Node")]
pub(super) struct Node {
    /// gRPC address of a containerd to work for (repeatable)
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/run/containerd/containerd.sock",
        env = "CGROUP_REAPER_CONTAINERD_ADDRESS",
        value_delimiter = ','
    )]
    containerd_address: Vec<String>,
    /// State directory of that containerd, where its bundles are (repeatable)
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/run/containerd",
        env = "CGROUP_REAPER_CONTAINERD_STATE",
        value_delimiter = ','
    )]
    containerd_state: Vec<PathBuf>,
    /// State root of runc or crun, without the namespace (repeatable)
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/run/containerd/runc",
        env = "CGROUP_REAPER_RUNC_ROOT",
        value_delimiter = ','
    )]
    runc_root: Vec<PathBuf>,
    /// Where cgroups are mounted: a v2 mount, or the directory above v1's (repeatable)
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/sys/fs/cgroup",
        env = "CGROUP_REAPER_CGROUP_ROOT",
        value_delimiter = ','
    )]
    cgroup_root: Vec<PathBuf>,
    /// Where the daemon remembers what it saw
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/cgroup-reaper",
        env = "CGROUP_REAPER_STATE_DIR"
    )]
    pub(super) state_dir: PathBuf,
}

/// Where acts are recorded.
#[derive(Debug, Clone, Args)]
pub(super) struct AuditLog {
    /// Where every act is recorded, before and after; one writer at a time, so `reap` needs its own while the daemon
    /// runs
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/log/cgroup-reaper/audit.jsonl",
        env = "CGROUP_REAPER_AUDIT_LOG"
    )]
    pub(super) audit_log: PathBuf,
}

/// What it takes to call something leaked.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Judgement")]
pub(super) struct Judgement {
    /// How long something must look leaked, without a break, before it is [default: 1m]
    ///
    /// Two looks are taken in any case, however short this is. Age counts from what was seen, by this command or by
    /// the daemon before it.
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "CGROUP_REAPER_GRACE")]
    grace: Option<Duration>,
    /// Never touch the container with this id (repeatable)
    #[arg(long, value_name = "ID", value_parser = |id: &str| ContainerId::try_from(id))]
    protect_id: Vec<ContainerId>,
    /// Never touch this containerd namespace (repeatable)
    #[arg(long, value_name = "NAMESPACE", value_parser = |name: &str| Namespace::try_from(name))]
    protect_namespace: Vec<Namespace>,
    /// Never touch cgroups that match, nor what lies inside of them, as `/kubepods/**/pod1234*` (repeatable)
    ///
    /// `*` and `?` stay within one name, `**` does not; `[ab]`, `{a,b}` as in a shell. A container can ask for itself,
    /// by the annotation cgroup-reaper.io/protect=true in its spec.
    #[arg(long, value_name = "GLOB", value_parser = |text: &str| PathPattern::try_from(text.to_owned()))]
    protect_path: Vec<PathPattern>,
}

/// What to keep for a bug report.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Bug reports")]
pub(super) struct Record {
    /// Add every look to this file, for a bug report; `cgroup-reaper replay` judges it anew
    ///
    /// Kept are ids, paths, process numbers, program names and states, and what containerd, shims and files said.
    /// Of command lines only the program's name is kept, and of a runtime's command its verb and container id; no
    /// environment, no other argument. The file is made with mode 0600 and ends at 256 MiB.
    #[arg(long, value_name = "FILE", env = "CGROUP_REAPER_RECORD")]
    pub(super) record: Option<PathBuf>,
}

/// Reads `10s`, `2m`, `1h 30m`; not negative.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration = text.parse().map_err(|error| format!("{error} (try 30s, 2m or 1h)"))?;
    Duration::try_from(parsed).map_err(|_negative| "a duration cannot be negative".to_owned())
}

/// Reads a kind of leak.
pub(super) fn kind(word: &str) -> Result<LeakKind, String> {
    LeakKind::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or_else(|| {
        let known: Vec<&str> = LeakKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("no such kind; there are {}", known.join(", "))
    })
}

// === impl Node ===

impl Node {
    /// As the survey takes it.
    pub(super) fn sources(&self) -> Sources {
        Sources {
            containerd_addresses: self.containerd_address.clone(),
            containerd_states: self.containerd_state.clone(),
            runc_roots: self.runc_root.clone(),
            cgroup_roots: self.cgroup_root.clone(),
            expected: Expected::Running,
        }
    }

    /// Ready to look.
    pub(super) fn survey(&self, expected: Expected) -> anyhow::Result<Survey> {
        Survey::new(Sources { expected, ..self.sources() })
            .context("no cgroups to look at; is --cgroup-root right?")
    }

    /// An engine with the memory of the daemon, if there is any that can be read.
    pub(super) fn engine(&self, policy: Policy) -> anyhow::Result<Engine> {
        self.engine_for(policy, Expected::Running)
    }

    /// The same, with another expectation of our containerds.
    pub(super) fn engine_for(&self, policy: Policy, expected: Expected) -> anyhow::Result<Engine> {
        let boot = boot_id()?;
        let memory = Memory::load(&self.state_dir, &boot).unwrap_or_else(|error| {
            tracing::warn!(error = %crate::kernel::chain(&error), "starting without memory");
            Memory { boot, ..Memory::default() }
        });
        Ok(Engine::new(self.survey(expected)?, policy, memory))
    }
}

// === impl Record ===

impl Record {
    /// The open trace, if one is wanted.
    pub(super) fn open(&self) -> Result<Option<Recorder>, RecordError> {
        self.record.as_deref().map(Recorder::open).transpose()
    }
}

/// The kernel's boot id.
pub(super) fn boot_id() -> anyhow::Result<String> {
    const LIMIT: u64 = 64;
    let id = crate::kernel::read_path("/proc/sys/kernel/random/boot_id", LIMIT)?;
    Ok(String::from_utf8_lossy(&id).trim().to_owned())
}

/// The node's name, for records.
pub(super) fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

// === impl Judgement ===

impl Judgement {
    /// The policy, in observe mode.
    pub(super) fn policy(&self) -> Policy {
        let policy = Policy::default();
        Policy {
            grace: self.grace.unwrap_or(policy.grace),
            protect_ids: self.protect_id.iter().cloned().collect(),
            protect_namespaces: self.protect_namespace.iter().cloned().collect(),
            protect_paths: self.protect_path.clone(),
            ..policy
        }
    }

    /// The grace, if the user named one.
    pub(super) const fn named_grace(&self) -> Option<Duration> {
        self.grace
    }

    /// How long a one-shot command watches between its two looks: the grace if the user named one.
    pub(super) fn watch(&self, policy: &Policy) -> Duration {
        self.grace.unwrap_or_default().max(policy.look_gap).saturating_add(Duration::from_millis(20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_what_people_write() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(duration("-1s").unwrap_err().contains("negative"));
        assert!(duration("soon").unwrap_err().contains("try 30s"));
    }
}
