//! Reads a file of records line by line and follows its chain up to the first bad line.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};

use serde::de::IgnoredAny;

use super::chain::{self, Digest, MAX_LINE};
use super::record::{Body, IntentBody, Record, VERSION};

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The last line has no newline.
    #[error("line is not terminated")]
    Unterminated,
    /// Longer than any record.
    #[error("line is too long")]
    TooLong,
    /// No JSON at all.
    #[error("line is not JSON")]
    NotJson,
    /// JSON without a hash at its end.
    #[error("line carries no hash")]
    NoHash,
    /// The line was altered.
    #[error("line has hash {found}, its bytes give {computed}")]
    Hash {
        /// What the line says.
        found: Digest,
        /// What it should say.
        computed: Digest,
    },
    /// A line before it was removed, added or moved.
    #[error("line follows {found}, the line before it is {expected}")]
    Chain {
        /// What the line says.
        found: Digest,
        /// The hash of the line before it.
        expected: Digest,
    },
    /// A number is missing or comes twice.
    #[error("line has sequence {found} instead of {expected}")]
    Sequence {
        /// What the line says.
        found: u64,
        /// What it should say.
        expected: u64,
    },
    /// The first line does not open a segment.
    #[error("file does not begin with segment.open")]
    NoSegment,
    /// Whole, and written by a program that knows more types than this one.
    #[error("record cannot be understood: {0}")]
    Format(String),
}

/// An intent without an outcome: the act may have been carried out in part, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an act that nobody closes stays open"]
pub struct OpenIntent {
    /// Names the act: `seq` of its intent.
    pub txn: u64,
    /// The leak's id.
    pub leak: String,
    /// The kernel's boot id at that time: in another boot every process and cgroup of it is gone.
    pub boot: String,
    /// The intent.
    pub body: IntentBody,
}

/// The end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) hash: Digest,
}

/// What a file holds up to its first bad line.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Good lines.
    pub(super) lines: u64,
    /// Bytes of the good lines.
    pub(super) len: u64,
    /// The first good line's number.
    pub(super) first_seq: Option<u64>,
    /// The last good line; `None` if there is none.
    pub(super) head: Option<Head>,
    /// Intents without an outcome so far, in order.
    pub(super) open: BTreeMap<u64, OpenIntent>,
    /// The first bad line.
    pub(super) bad: Option<Bad>,
}

/// The first bad line.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) fault: Fault,
    /// Nothing follows it.
    pub(super) last: bool,
}

/// Follows the chain; errors are those of reading.
pub(super) fn walk(mut reader: impl BufRead) -> io::Result<Walk> {
    let mut walk = Walk::default();
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(walk);
        }
        if let Err(fault) = walk.follow(&line) {
            let last = reader.fill_buf()?.is_empty();
            walk.bad = Some(Bad { fault, last });
            return Ok(walk);
        }
    }
}

// === impl Walk ===

impl Walk {
    fn follow(&mut self, line: &[u8]) -> Result<(), Fault> {
        let whole = line.strip_suffix(b"\n").ok_or(match line.len() {
            MAX_LINE.. => Fault::TooLong,
            _ => Fault::Unterminated,
        })?;
        let (record, hash) = self.check(whole)?;
        self.lines = self.lines.saturating_add(1);
        self.len = self.len.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        self.first_seq.get_or_insert(record.seq);
        self.head = Some(Head { seq: record.seq, hash });
        self.note(record);
        Ok(())
    }

    /// The bytes first, then the place in the chain, then the meaning: a line that is whole is never taken for
    /// a torn one only because it is not understood.
    fn check(&self, line: &[u8]) -> Result<(Record, Digest), Fault> {
        serde_json::from_slice::<IgnoredAny>(line).map_err(|_syntax| Fault::NotJson)?;
        let split = chain::split(line).ok_or(Fault::NoHash)?;
        let record = serde_json::from_slice::<Record>(line);
        let prev = match (&record, self.head) {
            (_, Some(head)) => head.hash,
            (Ok(record), None) => record.prev,
            (Err(error), None) => return Err(Fault::Format(error.to_string())),
        };
        let computed = prev.next(split.covered);
        let record = record.map_err(|error| Fault::Format(error.to_string()));
        if let Ok(Record { prev: found, .. }) = record
            && found != prev
        {
            return Err(Fault::Chain { found, expected: prev });
        }
        if computed != split.hash {
            return Err(Fault::Hash { found: split.hash, computed });
        }
        let record = record?;
        self.place(&record)?;
        Ok((record, split.hash))
    }

    fn place(&self, record: &Record) -> Result<(), Fault> {
        if record.v != VERSION {
            return Err(Fault::Format(format!("version {}", record.v)));
        }
        let Some(head) = self.head else {
            return place_first(record);
        };
        let expected = head.seq.saturating_add(1);
        if record.seq == expected { Ok(()) } else { Err(Fault::Sequence { found: record.seq, expected }) }
    }

    fn note(&mut self, record: Record) {
        match record.body {
            Body::ReapIntent { leak, txn, body } => {
                self.open.insert(txn, OpenIntent { txn, leak, boot: record.boot, body });
            }
            Body::ReapOutcome { txn, .. } | Body::ReapRecovered { txn, .. } => {
                self.open.remove(&txn);
            }
            Body::SegmentOpen
            | Body::DaemonStart { .. }
            | Body::DaemonStop { .. }
            | Body::AuditReopened { .. }
            | Body::Pause { .. }
            | Body::Resume { .. }
            | Body::LeakConfirmed { .. } => {}
        }
    }
}

fn place_first(record: &Record) -> Result<(), Fault> {
    if !matches!(record.body, Body::SegmentOpen) {
        return Err(Fault::NoSegment);
    }
    // A chain that begins here has nothing before it.
    if record.seq == 1 && record.prev != Digest::GENESIS {
        return Err(Fault::Chain { found: record.prev, expected: Digest::GENESIS });
    }
    Ok(())
}
