//! Labels: closed sets of words, so that the number of series is known before the first event.

use crate::leak::{Cause, Guard, HoldKind, KillMethod, LeakKind, LeakState, Outcome};

/// The values of one or more labels.
pub trait Labels: Copy + 'static {
    /// Names of the labels.
    const NAMES: &'static [&'static str];

    /// Every combination; each is exported from the start, at zero, so that `increase()` sees the first event.
    fn all() -> Vec<Self>;

    /// This combination's values, in the order of the names.
    fn values(self) -> Vec<&'static str>;
}

/// One label.
pub trait Word: Copy + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// Every value.
    const WORDS: &'static [Self];

    /// The label's value.
    fn word(self) -> &'static str;

    /// The label that has this value.
    fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().copied().find(|each| each.word() == word)
    }
}

impl<A: Word> Labels for A {
    const NAMES: &'static [&'static str] = &[A::NAME];

    fn all() -> Vec<Self> {
        A::WORDS.to_vec()
    }

    fn values(self) -> Vec<&'static str> {
        vec![self.word()]
    }
}

/// Gives a closed set of words the name of a label.
macro_rules! label {
    ($name:ident as $label:literal) => {
        impl Word for $name {
            const NAME: &'static str = $label;
            const WORDS: &'static [Self] = Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }
        }
    };
}

/// Declares a closed set of words that is a label.
macro_rules! labels {
    ($(#[$meta:meta])* $name:ident as $label:literal { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The label's value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        label!($name as $label);
    };
}

label!(LeakKind as "kind");
label!(LeakState as "state");
label!(Cause as "cause");
label!(Guard as "guard");
label!(Outcome as "outcome");
label!(HoldKind as "by");
label!(KillMethod as "method");

labels! {
    /// What the daemon rests on.
    Component as "component" {
        /// The probes.
        Ebpf = "ebpf",
        /// containerd's sockets.
        Containerd = "containerd",
        /// The cgroup hierarchies.
        Cgroupfs = "cgroupfs",
        /// The audit file.
        Audit = "audit",
    }
}

labels! {
    /// How kernel events are obtained.
    ProbeLevel as "level" {
        /// BTF tracepoints.
        Btf = "btf",
        /// Tracepoints with offsets from their format files.
        Classic = "classic",
        /// No programs: notifications and periodic scans.
        Poll = "poll",
    }
}

labels! {
    /// A kernel event.
    KernelEvent as "event" {
        /// A cgroup was made.
        CgroupMkdir = "cgroup_mkdir",
        /// A cgroup was removed.
        CgroupRmdir = "cgroup_rmdir",
        /// A cgroup froze or thawed.
        CgroupFreeze = "cgroup_freeze",
        /// A cgroup became populated or unpopulated.
        CgroupPopulated = "cgroup_populated",
        /// A process forked.
        ProcessFork = "process_fork",
        /// A process executed a program.
        ProcessExec = "process_exec",
        /// A process ended.
        ProcessExit = "process_exit",
        /// This program sent SIGKILL.
        Signal = "signal",
    }
}

labels! {
    /// Why a kernel event was lost.
    Loss as "reason" {
        /// The ring buffer had no room.
        RingbufFull = "ringbuf_full",
        /// A record could not be decoded.
        Decode = "decode",
        /// A program or map refused it in the kernel.
        Kernel = "kernel",
        /// The daemon did not keep up.
        QueueFull = "queue_full",
    }
}

labels! {
    /// What caused a full scan.
    ResyncTrigger as "trigger" {
        /// The start.
        Startup = "startup",
        /// The clock.
        Periodic = "periodic",
        /// A kernel event, or a suspect that became old enough.
        Event = "event",
        /// Lost events.
        LostEvents = "lost_events",
        /// The machine was suspended.
        Suspend = "suspend",
        /// A person.
        Operator = "operator",
    }
}

labels! {
    /// Who made a leak go away.
    ClearedBy as "by" {
        /// containerd or its shim.
        Runtime = "runtime",
        /// This program.
        Reaper = "reaper",
        /// A person.
        Operator = "operator",
        /// It went, and nobody said who did it.
        Vanished = "vanished",
    }
}

labels! {
    /// A step of a reap.
    ReapStep as "step" {
        /// Kill every member and wait until nothing is populated.
        Kill = "kill",
        /// Remove the directories.
        Rmdir = "rmdir",
        /// Unmount a rootfs.
        Umount = "umount",
        /// Make systemd forget a failed scope.
        ResetUnit = "reset_unit",
    }
}

labels! {
    /// A question to containerd or a shim.
    RuntimeMethod as "method" {
        /// Which version serves.
        Version = "version",
        /// Which namespaces exist.
        NamespacesList = "namespaces_list",
        /// Which records exist.
        ContainersList = "containers_list",
        /// One record.
        ContainersGet = "containers_get",
        /// One task.
        TasksGet = "tasks_get",
        /// A task, asked of its shim.
        ShimState = "shim_state",
        /// What happens, as a stream.
        EventsSubscribe = "events_subscribe",
    }
}

labels! {
    /// Whether a question was answered; "not found" is an answer.
    RequestOutcome as "outcome" {
        /// Answered.
        Ok = "ok",
        /// Failed or timed out.
        Error = "error",
    }
}

labels! {
    /// Type of an audit record.
    RecordType as "type" {
        /// A file begins.
        SegmentOpen = "segment.open",
        /// The daemon began.
        DaemonStart = "daemon.start",
        /// The daemon ended.
        DaemonStop = "daemon.stop",
        /// The file failed and was opened again.
        AuditReopened = "audit.reopened",
        /// Acting is held.
        Pause = "pause",
        /// It goes on.
        Resume = "resume",
        /// A leak is proven.
        LeakConfirmed = "leak.confirmed",
        /// An act begins.
        ReapIntent = "reap.intent",
        /// An act ended.
        ReapOutcome = "reap.outcome",
        /// An interrupted act is closed.
        ReapRecovered = "reap.recovered",
    }
}

labels! {
    /// What failed while recording.
    AuditOp as "op" {
        /// Opening the file.
        Open = "open",
        /// Writing a line.
        Write = "write",
        /// Making it durable.
        Sync = "sync",
    }
}

/// Two labels, every value of one with every value of the other.
impl<A: Word, B: Word> Labels for (A, B) {
    const NAMES: &'static [&'static str] = &[A::NAME, B::NAME];

    fn all() -> Vec<Self> {
        let with = |first: A| B::WORDS.iter().map(move |second| (first, *second));
        A::WORDS.iter().copied().flat_map(with).collect()
    }

    fn values(self) -> Vec<&'static str> {
        vec![self.0.word(), self.1.word()]
    }
}
