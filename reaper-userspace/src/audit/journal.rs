//! Appends records. An act is framed by two durable lines, and the first one is a value that the act must have.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::bound;
use super::chain::{self, MAX_LINE};
use super::error::AuditError;
use super::record::{
    Body, Confirmed, IntentBody, OutcomeBody, PauseBody, Record, RecoveredBody, Stamp, Target, Tool, VERSION,
};
use super::recover;
use super::walk::{Head, OpenIntent};
use crate::leak::HoldKind;

/// Where records are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's boot id.
    pub boot: String,
    /// The node's name.
    pub name: String,
}

/// A file of records that only this value writes to.
///
/// Its calls block on the disk.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    node: Node,
    head: Head,
    poisoned: bool,
}

/// Proof that an act is on record before it begins. Whoever acts holds one; [`Journal::outcome`] takes it back.
///
/// Dropped without an outcome, the act stays open in the file and comes back from the next [`Journal::open`].
#[derive(Debug)]
#[must_use = "an act that nobody closes stays open"]
pub struct Intent {
    txn: u64,
    leak: String,
    target: Target,
}

/// Whether a record must have reached the disk when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    Now,
    WithTheNext,
}

// === impl Intent ===

impl Intent {
    /// Names the act in the file.
    pub const fn txn(&self) -> u64 {
        self.txn
    }
}

// === impl Journal ===

impl Journal {
    /// Opens or creates a file, with mode 0600, and returns the acts in it that have no outcome, oldest first.
    /// Each is to be judged anew and then closed with [`Journal::recovered`].
    ///
    /// A torn last line is moved to `FILE.torn`. A new file goes on from the chain of `FILE.1`, if that exists.
    pub fn open(path: &Path, node: Node, at: Stamp) -> Result<(Self, Vec<OpenIntent>), AuditError> {
        let sound = recover::open(path)?;
        let mut journal =
            Self { file: sound.file, path: path.to_owned(), node, head: sound.head, poisoned: false };
        if sound.empty {
            journal.append(at, Body::SegmentOpen, Durable::Now)?;
        }
        Ok((journal, sound.open))
    }

    /// Number of the last record.
    pub const fn sequence(&self) -> u64 {
        self.head.seq
    }

    /// Records that the daemon or a one-shot command began.
    pub fn daemon_start(&mut self, at: Stamp, tool: Tool) -> Result<(), AuditError> {
        self.append(at, Body::DaemonStart { tool }, Durable::WithTheNext)
    }

    /// Records an orderly end.
    pub fn daemon_stop(&mut self, at: Stamp, reason: String) -> Result<(), AuditError> {
        self.append(at, Body::DaemonStop { reason }, Durable::Now)
    }

    /// Records a proven leak.
    pub fn leak_confirmed(&mut self, at: Stamp, leak: String, body: Confirmed) -> Result<(), AuditError> {
        self.append(at, Body::LeakConfirmed { leak, body }, Durable::WithTheNext)
    }

    /// Announces an act. On disk when this returns; on an error nothing may be done.
    pub fn intent(&mut self, at: Stamp, leak: String, body: IntentBody) -> Result<Intent, AuditError> {
        let txn = self.head.seq.saturating_add(1);
        let intent = Intent { txn, leak: leak.clone(), target: body.target.clone() };
        self.append(at, Body::ReapIntent { leak, txn, body }, Durable::Now)?;
        Ok(intent)
    }

    /// Closes an act. On disk when this returns. After an error no further act can be announced until the file is
    /// opened again, which returns this one as open.
    pub fn outcome(&mut self, at: Stamp, intent: Intent, body: OutcomeBody) -> Result<(), AuditError> {
        let Intent { txn, leak, target } = intent;
        self.close(at, Body::ReapOutcome { leak, txn, target, body })
    }

    /// Closes an act whose end is known and could not be recorded before the file was opened again.
    pub fn ended(&mut self, at: Stamp, open: OpenIntent, body: OutcomeBody) -> Result<(), AuditError> {
        let OpenIntent { txn, leak, body: intent, boot: _ } = open;
        self.close(at, Body::ReapOutcome { leak, txn, target: intent.target, body })
    }

    /// Records that nothing is reaped from here on.
    pub fn pause(&mut self, at: Stamp, hold: HoldKind, body: PauseBody) -> Result<(), AuditError> {
        self.append(at, Body::Pause { hold, body }, Durable::WithTheNext)
    }

    /// Records that a pause has ended.
    pub fn resume(&mut self, at: Stamp, hold: HoldKind) -> Result<(), AuditError> {
        self.append(at, Body::Resume { hold }, Durable::WithTheNext)
    }

    /// Records that the file failed and was opened again: in between nothing was recorded, and nothing done.
    pub fn reopened(&mut self, at: Stamp, reason: String) -> Result<(), AuditError> {
        self.append(at, Body::AuditReopened { reason }, Durable::Now)
    }

    /// Closes an act whose end was not recorded, with what is there now.
    pub fn recovered(&mut self, at: Stamp, open: OpenIntent, body: RecoveredBody) -> Result<(), AuditError> {
        let OpenIntent { txn, leak, body: intent, boot: _ } = open;
        self.close(at, Body::ReapRecovered { leak, txn, target: intent.target, body })
    }

    fn close(&mut self, at: Stamp, body: Body) -> Result<(), AuditError> {
        let closed = self.append(at, body, Durable::Now);
        self.poisoned |= closed.is_err();
        closed
    }

    fn append(&mut self, at: Stamp, body: Body, durable: Durable) -> Result<(), AuditError> {
        if self.poisoned {
            return Err(AuditError::Poisoned { path: self.path.clone() });
        }
        let seq = self.head.seq.saturating_add(1);
        let record = Record {
            v: VERSION,
            seq,
            ts: at.wall,
            mono_ns: at.boot,
            boot: self.node.boot.clone(),
            node: self.node.name.clone(),
            body: bound::body(body),
            prev: self.head.hash,
        };
        let (line, hash) = chain::seal(&record, self.head.hash)
            .map_err(|source| AuditError::Encode { path: self.path.clone(), source })?;
        if line.len() > MAX_LINE {
            return Err(AuditError::TooLong { path: self.path.clone(), bytes: line.len() });
        }
        self.poisoned = true;
        self.write(&line)?;
        if durable == Durable::Now {
            let sync = self.file.sync_data();
            sync.map_err(|source| AuditError::Sync { path: self.path.clone(), source })?;
        }
        self.poisoned = false;
        self.head = Head { seq, hash };
        Ok(())
    }

    /// One `write(2)`. A short one has left half a line, which must not be continued: the rest could come after
    /// another failure, or never.
    fn write(&mut self, line: &[u8]) -> Result<(), AuditError> {
        let error = |source| AuditError::Write { path: self.path.clone(), source };
        let written = loop {
            match self.file.write(line) {
                // Nothing was written.
                Err(interrupted) if interrupted.kind() == io::ErrorKind::Interrupted => {}
                result => break result.map_err(error)?,
            }
        };
        if written == line.len() { Ok(()) } else { Err(error(io::ErrorKind::StorageFull.into())) }
    }
}

#[cfg(test)]
impl Journal {
    pub(super) fn replace_file(&mut self, file: File) {
        self.file = file;
    }

    pub(super) fn skip_a_number(&mut self) {
        self.head.seq = self.head.seq.saturating_add(1);
    }
}
