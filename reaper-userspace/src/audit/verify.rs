//! Checks a whole file, as a reader who does not trust it.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::chain::Digest;
use super::walk::{self, Fault, OpenIntent};

/// What a sound file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Lines.
    pub records: u64,
    /// Number of the first line; above 1 where the file goes on from an earlier one.
    pub first_seq: Option<u64>,
    /// Number of the last line.
    pub last_seq: Option<u64>,
    /// Hash of the last line: whoever keeps it elsewhere can tell later that no line was lost at the end.
    pub head: Digest,
    /// Acts without an end. One may be under way; more, or an old one, were interrupted.
    pub open: Vec<OpenIntent>,
}

/// Why a file is not sound.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The file could not be opened.
    #[error("cannot open audit file {path:?}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file could not be read to its end.
    #[error("cannot read audit file {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The first bad line.
    #[error("audit file {path:?} is broken at line {line}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        #[source]
        source: Fault,
    },
}

/// Reads a file from end to end and checks every hash, the chain and the sequence.
///
/// A file that is being written to can be verified; its last line may then be incomplete.
pub fn verify(path: &Path) -> Result<VerifyReport, VerifyError> {
    let file = File::open(path).map_err(|source| VerifyError::Open { path: path.to_owned(), source })?;
    let walk = walk::walk(BufReader::new(file))
        .map_err(|source| VerifyError::Read { path: path.to_owned(), source })?;
    if let Some(bad) = walk.bad {
        let line = walk.lines.saturating_add(1);
        return Err(VerifyError::Line { path: path.to_owned(), line, source: bad.fault });
    }
    Ok(VerifyReport {
        records: walk.lines,
        first_seq: walk.first_seq,
        last_seq: walk.head.map(|head| head.seq),
        head: walk.head.map_or(Digest::GENESIS, |head| head.hash),
        open: walk.open.into_values().collect(),
    })
}
