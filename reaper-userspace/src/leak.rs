//! The project's words: what can leak, why, what holds an act back, and in which state a leak is.
//!
//! Closed sets: they are metric labels, JSON values and audit fields, and must not change meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares a closed set of words with their spelling, `ALL`, `as_str`, `Display` and serde by spelling.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The spelling in every output.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// What is left over.
    LeakKind {
        /// Made by a create that died before the runtime's state was saved; its init waits or is frozen.
        HalfCreated = "cgroup.half_created",
        /// Processes that outlived init, shim and task.
        Orphaned = "cgroup.orphaned",
        /// Directories without any process, in one or all hierarchies.
        Empty = "cgroup.empty",
        /// A bundle whose rootfs is still mounted although shim, task and cgroup are gone.
        BundleDead = "bundle.dead",
        /// A container's scope that failed and stays loaded, although nothing of the container is left to run.
        UnitFailed = "unit.failed",
        /// A live container outside of the cgroup that its bundle names, and so without its limits. Reported only.
        Misplaced = "container.misplaced",
    }
}

words! {
    /// What made it leak, as far as the evidence goes.
    Cause {
        /// The runtime's create was killed midway.
        CreateKilled = "create_killed",
        /// The runtime's delete did not finish.
        DeleteFailed = "delete_failed",
        /// The shim is gone and nobody else knows the container.
        ShimDead = "shim_dead",
        /// A scope of that name was there already, and the runtime went on without one.
        UnitExists = "unit_exists",
        /// The evidence does not say.
        Unknown = "unknown",
    }
}

words! {
    /// State of a leak.
    LeakState {
        /// Has the shape of a leak; time will tell.
        Suspected = "suspected",
        /// Proven.
        Confirmed = "confirmed",
        /// Has the shape of a leak, and a guard that time alone does not lift.
        Protected = "protected",
        /// Was reaped in part; something cannot end.
        Stuck = "stuck",
    }
}

words! {
    /// What holds an act back. Each value is a row of a table in `verdict` or `plan`.
    Guard {
        /// containerd, a shim or another container's record owns it.
        KnownToRuntime = "known_to_runtime",
        /// A runtime command for it is running.
        InFlight = "in_flight",
        /// The recorded init lives and somebody may still act for it.
        LiveInit = "live_init",
        /// The container record remains and init is not proven dead: its owner may act.
        RecordPresent = "record_present",
        /// A question got no answer.
        SourceUnavailable = "source_unavailable",
        /// Kernel events were lost and the resync is not done.
        EventGap = "event_gap",
        /// The cgroup is not the one that was seen, or the bundle names another.
        IdentityChanged = "identity_changed",
        /// Nothing but a name says that it is a container's.
        NoProvenance = "no_provenance",
        /// Another manager's: a foreign containerd, conmon, a user's session, a container inside a container.
        Foreign = "foreign",
        /// A slice, a service, a root: never a container's leaf; or an operator's rule.
        Protected = "protected",
        /// A shim lives inside (Kata's layout).
        ShimInside = "shim_inside",
        /// Ourselves, PID 1, a containerd, a kubelet or a kernel thread is inside.
        SelfInside = "self",
        /// A member that the kill hierarchy does not list.
        StrayMember = "stray_member",
        /// Not quiet for long enough, or seen only once.
        TooYoung = "too_young",
        /// Too many leaks at once: something else is wrong.
        Storm = "storm",
        /// The budget is used up.
        RateLimited = "rate_limited",
        /// The operator paused.
        Paused = "paused",
        /// The record of the act cannot be made durable.
        AuditUnavailable = "audit_unavailable",
        /// The mode of this kind is observe.
        ModeObserve = "mode_observe",
    }
}

words! {
    /// Why a whole daemon does not act, though it is told to.
    HoldKind {
        /// A person said so.
        Pause = "pause",
        /// Too many leaks at once, and nobody has looked yet.
        Storm = "storm",
        /// An act killed a process that was none of its target's, and nobody has looked yet.
        Bystander = "bystander",
        /// Another daemon has the state directory.
        Standby = "standby",
    }
}

words! {
    /// How an act ended.
    Outcome {
        /// Everything that leaked is gone, by this act.
        Reaped = "reaped",
        /// It went by itself in the meantime.
        AlreadyGone = "already_gone",
        /// A step failed, and the cgroups are gone.
        Partial = "partial",
        /// Nothing could be done.
        Failed = "failed",
        /// Something cannot end within the bound of the act.
        Stuck = "stuck",
        /// A guard held at the last check; nothing was done.
        Vetoed = "vetoed",
    }
}

words! {
    /// How a process was killed.
    KillMethod {
        /// By a signal through the pidfd of a proven member.
        Pidfd = "pidfd",
    }
}

words! {
    /// Where a piece of evidence was read.
    Source {
        /// gRPC answers of containerd.
        Containerd = "containerd",
        /// ttrpc answers of a shim.
        Shim = "shim",
        /// Bundles and runtime state on disk.
        Files = "files",
        /// The cgroup file systems.
        Cgroupfs = "cgroupfs",
        /// `/proc`.
        Procfs = "procfs",
        /// Answers of systemd.
        Systemd = "systemd",
        /// Our own earlier looks.
        Inventory = "inventory",
        /// Events of the kernel, from the probes.
        Kernel = "kernel",
    }
}

// === impl KillMethod ===

impl Default for KillMethod {
    /// The only one there is.
    fn default() -> Self {
        Self::Pidfd
    }
}

// === impl LeakKind ===

impl LeakKind {
    /// True where processes have to be killed.
    pub const fn has_processes(self) -> bool {
        match self {
            Self::HalfCreated | Self::Orphaned => true,
            Self::Empty | Self::BundleDead | Self::UnitFailed | Self::Misplaced => false,
        }
    }
}
