//! What a line says. Field order here is the order of the keys in the file.
//!
//! Whatever is written parses back: texts that come from the node are plain strings here, bounded and checked
//! elsewhere, so that no name a container chose can make the file unreadable.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::before::{Before, is_zero};
use super::chain::Digest;
use crate::ident::{CgroupRef, ContainerId, Namespace};
use crate::leak::{Cause, Guard, HoldKind, KillMethod, LeakKind, Outcome};
use crate::time::BootTime;

/// Version of the schema.
pub(super) const VERSION: u32 = 1;

/// One line, without its own hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the schema, 1.
    pub v: u32,
    /// Counts the lines of the chain, from 1 and without a gap, across files.
    pub seq: u64,
    /// Wall time, for people.
    pub ts: Timestamp,
    /// Time since boot.
    pub mono_ns: BootTime,
    /// The kernel's boot id.
    pub boot: String,
    /// The node's name.
    pub node: String,
    /// What happened; its `type` comes first.
    #[serde(flatten)]
    pub body: Body,
    /// Hash of the line before.
    pub prev: Digest,
}

/// When something is recorded, as the daemon's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Wall time.
    pub wall: Timestamp,
    /// Time since boot.
    pub boot: BootTime,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Body {
    /// First line of every file; `seq` and `prev` go on from the file before it, if there is one.
    #[serde(rename = "segment.open")]
    SegmentOpen,
    /// The daemon or a one-shot command began.
    #[serde(rename = "daemon.start")]
    DaemonStart {
        /// What began.
        tool: Tool,
    },
    /// It ended in an orderly way.
    #[serde(rename = "daemon.stop")]
    DaemonStop {
        /// Why, for people.
        reason: String,
    },
    /// The file failed and was opened again.
    #[serde(rename = "audit.reopened")]
    AuditReopened {
        /// How it failed.
        reason: String,
    },
    /// Nothing is reaped from here on.
    #[serde(rename = "pause")]
    Pause {
        /// Why, in a word.
        hold: HoldKind,
        /// Why, for people, and how long.
        #[serde(flatten)]
        body: PauseBody,
    },
    /// A pause has ended.
    #[serde(rename = "resume")]
    Resume {
        /// Which.
        hold: HoldKind,
    },
    /// A leak is proven.
    #[serde(rename = "leak.confirmed")]
    LeakConfirmed {
        /// The leak's id.
        leak: String,
        /// The proof.
        #[serde(flatten)]
        body: Confirmed,
    },
    /// An act begins once this line is durable.
    #[serde(rename = "reap.intent")]
    ReapIntent {
        /// The leak's id.
        leak: String,
        /// Names the act: the `seq` of this line.
        txn: u64,
        /// The act.
        #[serde(flatten)]
        body: IntentBody,
    },
    /// An act ended.
    #[serde(rename = "reap.outcome")]
    ReapOutcome {
        /// The leak's id.
        leak: String,
        /// The act.
        txn: u64,
        /// Repeated from the intent.
        target: Target,
        /// How it ended.
        #[serde(flatten)]
        body: OutcomeBody,
    },
    /// An act whose end was not recorded is closed with what is there now.
    #[serde(rename = "reap.recovered")]
    ReapRecovered {
        /// The leak's id.
        leak: String,
        /// The act.
        txn: u64,
        /// Repeated from the intent.
        target: Target,
        /// What is there now.
        #[serde(flatten)]
        body: RecoveredBody,
    },
}

/// The program that acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its version.
    pub version: String,
    /// Identifies its configuration.
    pub config: String,
    /// `observe` or `enforce`.
    pub mode: String,
}

/// Who or what set an act off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Triggered {
    /// The daemon, by itself.
    Daemon,
    /// A person, by a command.
    Operator,
}

/// A person who gave a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Real user id.
    pub uid: u32,
    /// Who logged in, whatever the person became since; absent where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loginuid: Option<u32>,
}

/// Why something is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Who set it off.
    pub by: Triggered,
    /// The person, where one did.
    #[serde(flatten)]
    pub person: Option<Person>,
    /// What made it leak.
    pub rule: Cause,
    /// Guards that the person lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<Forced>,
}

/// Guards that a person lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// Which.
    pub guards: Vec<Guard>,
    /// Why, in the person's words.
    pub reason: String,
}

/// What is acted on, by identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Kind of leak.
    pub kind: LeakKind,
    /// Its cgroups, one a hierarchy.
    pub cgroup_ids: Vec<CgroupRef>,
    /// Their path, for people: bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Container id.
    pub container: ContainerId,
    /// containerd namespace.
    pub runtime_ns: Namespace,
}

/// One reason to believe that something leaked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Who said it.
    pub source: String,
    /// What was said.
    pub what: String,
    /// When, since boot.
    pub at: BootTime,
}

/// A time without acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseBody {
    /// Why, for people.
    pub reason: String,
    /// When it began.
    pub since: Timestamp,
    /// When it ends by itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Who wanted it; the program itself if nobody.
    #[serde(flatten)]
    pub person: Option<Person>,
}

/// A proven leak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// Why it is looked at.
    pub trigger: Trigger,
    /// What leaked.
    pub target: Target,
    /// The proof.
    pub evidence: Vec<Evidence>,
    /// Pieces of evidence that are not written out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evidence_omitted: usize,
    /// From the event that made it a leak to now, in milliseconds.
    pub detection_ms: Millis,
}

/// An act that is about to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentBody {
    /// What acts.
    pub tool: Tool,
    /// Why.
    pub trigger: Trigger,
    /// On what.
    pub target: Target,
    /// The proof.
    pub evidence: Vec<Evidence>,
    /// Pieces of evidence that are not written out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evidence_omitted: usize,
    /// What is there now.
    pub before: Before,
}

/// One step of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// What was done: `kill`, `thaw`, `rmdir`.
    pub op: String,
    /// On which path, where a step has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How long it took, in milliseconds.
    pub ms: Millis,
    /// Whether it did what it should.
    pub ok: bool,
    /// What went wrong, with the errno.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Processes that a reap killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killed {
    /// How.
    pub method: KillMethod,
    /// Who, at most 256.
    pub processes: Vec<KilledProcess>,
    /// Processes that are not written out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

/// One killed process, by incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KilledProcess {
    /// Thread group id.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub start: u64,
    /// `comm` when it was found a member, at most 256 bytes; empty where it could not be read.
    pub comm: String,
}

/// What was there after an act, looked at again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum After {
    /// Gone in every hierarchy.
    Gone,
    /// Something remains.
    Remains {
        /// What, and what holds it.
        what: String,
    },
    /// Nobody could tell.
    Unknown {
        /// Which question got no answer.
        reason: String,
    },
}

/// The end of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeBody {
    /// What was done, in order.
    pub steps: Vec<StepRecord>,
    /// Steps that are not written out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps_omitted: usize,
    /// Who died by it.
    #[serde(default, skip_serializing_if = "Killed::is_nobody")]
    pub killed: Killed,
    /// Who died by it and must not have. Empty, or the program has a fault.
    #[serde(default, skip_serializing_if = "Killed::is_nobody")]
    pub bystanders: Killed,
    /// What is there now.
    pub after: After,
    /// The result.
    pub outcome: Outcome,
    /// Why, where it is not `reaped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// From the first step to here, in milliseconds.
    pub dur_ms: Millis,
}

/// The end of an act that was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredBody {
    /// What is there now.
    pub after: After,
}

/// A duration, written as milliseconds with microseconds behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub Duration);

// === impl Person ===

impl std::fmt::Display for Person {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "uid {}", self.uid)?;
        self.loginuid.map_or(Ok(()), |login| write!(f, ", login uid {login}"))
    }
}

// === impl Trigger ===

impl Trigger {
    /// The daemon's own.
    pub const fn daemon(rule: Cause) -> Self {
        Self { by: Triggered::Daemon, person: None, rule, forced: None }
    }

    /// A person's, who may have lifted guards.
    pub const fn operator(person: Person, rule: Cause, forced: Option<Forced>) -> Self {
        Self { by: Triggered::Operator, person: Some(person), rule, forced }
    }
}

// === impl OutcomeBody ===

impl OutcomeBody {
    /// An end without steps and without anybody killed.
    pub fn new(outcome: Outcome, after: After, took: Duration) -> Self {
        let (steps, killed, bystanders) = (vec![], Killed::default(), Killed::default());
        Self {
            steps,
            steps_omitted: 0,
            killed,
            bystanders,
            after,
            outcome,
            reason: None,
            dur_ms: Millis(took),
        }
    }
}

// === impl Killed ===

impl Killed {
    /// True if no process is listed or counted.
    pub const fn is_nobody(&self) -> bool {
        self.processes.is_empty() && self.omitted == 0
    }
}

// === impl Body ===

impl Body {
    /// The value of `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SegmentOpen => "segment.open",
            Self::DaemonStart { .. } => "daemon.start",
            Self::DaemonStop { .. } => "daemon.stop",
            Self::AuditReopened { .. } => "audit.reopened",
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::LeakConfirmed { .. } => "leak.confirmed",
            Self::ReapIntent { .. } => "reap.intent",
            Self::ReapOutcome { .. } => "reap.outcome",
            Self::ReapRecovered { .. } => "reap.recovered",
        }
    }
}

// === impl Millis ===

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Dividing a whole number by a thousand gives the shortest spelling: 0.3, not 0.30000000000000004.
        let micros = (self.0.as_secs_f64() * 1e6).round();
        serializer.serialize_f64(micros / 1e3)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let millis = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(millis / 1e3).map(Self).map_err(serde::de::Error::custom)
    }
}
