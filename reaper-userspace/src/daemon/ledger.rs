//! The audit log as the daemon keeps it: open, or down and opened again later.
//!
//! A failed write leaves the end of the file in doubt, so the file is closed at once and nothing is acted on. Opening it
//! again reads the whole chain, moves a torn line aside and closes the acts in it that have no end: only then may the
//! next one begin. Tries are spaced by growing waits, as a disk that is full stays full for a while.

use std::path::PathBuf;
use std::time::Duration;

use super::engine::Engine;
use super::{clock, journal, records, recovery, report};
use crate::audit::{AuditError, Journal, Node, OpenIntent, OutcomeBody, Stamp};
use crate::kernel::chain;
use crate::metrics::{Metrics, RecordType};
use crate::time::BootTime;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// The log, its place, and what it still lacks.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    node: Node,
    metrics: Metrics,
    state: State,
    /// The end of an act that could not be recorded.
    unrecorded: Option<(u64, OutcomeBody)>,
}

#[derive(Debug)]
enum State {
    Open(Box<Journal>),
    Down(Down),
}

#[derive(Debug)]
struct Down {
    /// What went wrong first.
    cause: String,
    /// What went wrong last.
    reason: String,
    tries: u32,
    retry: BootTime,
}

// === impl Ledger ===

impl Ledger {
    /// Not open yet, and due to be.
    pub(super) fn new(path: PathBuf, node: Node, metrics: Metrics) -> Self {
        let (cause, reason) = ("not opened yet".to_owned(), "not opened yet".to_owned());
        let down = Down { cause, reason, tries: 0, retry: BootTime::default() };
        Self { path, node, metrics, state: State::Down(down), unrecorded: None }
    }

    /// Opens it for the first time, and records that the daemon begins.
    pub(super) fn begin(&mut self, engine: &Engine) -> Result<(), AuditError> {
        let mut journal = self.open(engine).inspect_err(|error| self.note_failure(error))?;
        let begun = journal.daemon_start(clock::stamp(), records::tool(engine.policy()));
        self.state = State::Open(Box::new(journal));
        self.recorded(RecordType::DaemonStart, begun);
        Ok(())
    }

    /// Opens it again, if it is down and the wait is over.
    pub(super) fn retry(&mut self, engine: &Engine) {
        let State::Down(Down { cause, retry, .. }) = &self.state else { return };
        if clock::boot() < *retry {
            return;
        }
        let cause = cause.clone();
        match self.open(engine) {
            Ok(mut journal) => {
                let noted = journal.reopened(clock::stamp(), cause);
                self.state = State::Open(Box::new(journal));
                self.recorded(RecordType::AuditReopened, noted);
                if self.down().is_none() {
                    tracing::info!(path = %self.path.display(), "the audit log works again");
                }
            }
            Err(error) => self.note_failure(&error),
        }
    }

    /// Why it takes no records, if it does not.
    pub(super) fn down(&self) -> Option<&str> {
        match &self.state {
            State::Open(_) => None,
            State::Down(down) => Some(&down.reason),
        }
    }

    /// When it is opened again, if it is down.
    pub(super) const fn retry_at(&self) -> Option<BootTime> {
        match &self.state {
            State::Open(_) => None,
            State::Down(down) => Some(down.retry),
        }
    }

    /// The open log.
    pub(super) fn journal(&mut self) -> Option<&mut Journal> {
        match &mut self.state {
            State::Open(journal) => Some(journal),
            State::Down(_) => None,
        }
    }

    /// Writes one record, if the log is open.
    pub(super) fn write(
        &mut self,
        kind: RecordType,
        write: impl FnOnce(&mut Journal, Stamp) -> Result<(), AuditError>,
    ) {
        if let Some(journal) = self.journal() {
            let written = write(journal, clock::stamp());
            self.recorded(kind, written);
        }
    }

    /// Counts a record; a failure that leaves the file in doubt closes it.
    pub(super) fn recorded(&mut self, kind: RecordType, written: Result<(), AuditError>) {
        match written {
            Ok(()) => {
                self.metrics.audit.records.inc(kind);
                if let State::Open(journal) = &self.state {
                    let sequence = u32::try_from(journal.sequence()).unwrap_or(u32::MAX);
                    self.metrics.audit.last_sequence.set(f64::from(sequence));
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// What a failure to record means: the record alone is lost, or the file is in doubt.
    pub(super) fn failed(&mut self, error: &AuditError) {
        if error.leaves_the_file_sound() {
            self.metrics.audit.failures.inc(report::audit_op(error));
            tracing::error!(error = %chain(error), "a record is lost");
        } else {
            tracing::error!(error = %chain(error), "the audit log failed, nothing is reaped until it works again");
            self.note_failure(error);
        }
    }

    /// Keeps the end of an act until it can be recorded.
    pub(super) fn keep(&mut self, txn: u64, body: OutcomeBody) {
        self.unrecorded = Some((txn, body));
    }

    /// The old file is closed before it is opened anew, as its lock would be in the way.
    fn note_failure(&mut self, error: &AuditError) {
        self.metrics.audit.failures.inc(report::audit_op(error));
        let reason = chain(error);
        let (tries, cause) = match &self.state {
            State::Open(_) | State::Down(Down { tries: 0, .. }) => (0, reason.clone()),
            State::Down(down) => (down.tries, down.cause.clone()),
        };
        let wait = FIRST_WAIT.saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX)).min(LONGEST_WAIT);
        let retry = clock::boot().after(wait);
        self.state = State::Down(Down { cause, reason, tries: tries.saturating_add(1), retry });
    }

    fn open(&mut self, engine: &Engine) -> Result<Journal, AuditError> {
        let (mut journal, open) = journal::open(&self.path, self.node.clone())?;
        let open = self.record_kept(&mut journal, open)?;
        let closed = recovery::close(&mut journal, open, engine.boot(), &engine.layout())?;
        for _ in 0..closed {
            self.metrics.audit.records.inc(RecordType::ReapRecovered);
        }
        Ok(journal)
    }

    /// An act whose end is known is closed with that, and not with what is found now.
    fn record_kept(
        &mut self,
        journal: &mut Journal,
        mut open: Vec<OpenIntent>,
    ) -> Result<Vec<OpenIntent>, AuditError> {
        let Some((txn, body)) = &self.unrecorded else { return Ok(open) };
        if let Some(index) = open.iter().position(|intent| intent.txn == *txn) {
            journal.ended(clock::stamp(), open.swap_remove(index), body.clone())?;
            self.metrics.audit.records.inc(RecordType::ReapOutcome);
        }
        self.unrecorded = None;
        open.sort_by_key(|intent| intent.txn);
        Ok(open)
    }
}
