//! Appends looks to a file.
//!
//! The file is the operator's: it is made with mode 0600, added to only if it is a trace already, and never grows
//! beyond [`FILE_LIMIT`]. An error ends the recording, never the look.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};

use super::{LINE_LIMIT, Scope, TracedLook, VERSION, reduced};
use crate::fact::Sighting;
use crate::inventory::Inventory;
use crate::policy::Policy;
use crate::time::BootTime;
use crate::verdict::Freshness;

/// Largest trace: a recording that was forgotten must not fill a disk.
const FILE_LIMIT: u64 = 256 << 20;
/// How every line begins; keeps us from adding to a file of another kind.
const BEGINS: &[u8] = b"{\"trace\":";

/// Why nothing (more) is recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It could not be opened or created.
    #[error("cannot open {path:?} to record")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Nothing of ours is there.
    #[error("{path:?} is {what}; name another file to record to")]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// It could not be written.
    #[error("cannot record to {path:?}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No more fits.
    #[error(
        "the next look does not fit into {path:?}: at most {LINE_LIMIT} bytes a look and {FILE_LIMIT} in all"
    )]
    Full {
        /// The file.
        path: PathBuf,
    },
}

/// The moment and the rules of a look.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Setting<'a> {
    pub(in crate::daemon) at: BootTime,
    pub(in crate::daemon) scope: Scope,
    pub(in crate::daemon) freshness: &'a Freshness,
    pub(in crate::daemon) policy: &'a Policy,
}

/// A trace that is being written.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    path: PathBuf,
    begun: bool,
}

// === impl Recorder ===

impl Recorder {
    /// Creates a trace, or goes on with one. The file is locked until the recorder is dropped.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let failed = |source| RecordError::Open { path: path.to_owned(), source };
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| failed(errno.into()))?;
        let file = File::from(file);
        if let Some(what) = other_kind(&file).map_err(failed)? {
            return Err(RecordError::OtherKind { path: path.to_owned(), what });
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| failed(errno.into()))?;
        Ok(Self { file, path: path.to_owned(), begun: false })
    }

    /// Adds one look; the first one with what was known before it.
    pub(in crate::daemon) fn add(
        &mut self,
        setting: &Setting<'_>,
        inventory: &Inventory,
        sightings: &[Sighting],
    ) -> Result<(), RecordError> {
        let failed = |source| RecordError::Write { path: self.path.clone(), source };
        let look = TracedLook {
            trace: VERSION,
            at: setting.at,
            scope: setting.scope,
            freshness: Cow::Borrowed(setting.freshness),
            policy: Cow::Borrowed(setting.policy),
            inventory: (!self.begun).then_some(Cow::Borrowed(inventory)),
            sightings: sightings.iter().map(reduced).collect(),
        };
        let mut line = serde_json::to_vec(&look).map_err(|source| failed(source.into()))?;
        line.push(b'\n');
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let before = self.file.metadata().map_err(failed)?.len();
        if length > LINE_LIMIT || before.saturating_add(length) > FILE_LIMIT {
            return Err(RecordError::Full { path: self.path.clone() });
        }
        self.file.write_all(&line).map_err(failed)?;
        self.begun = true;
        Ok(())
    }
}

/// What a file is if it is neither empty nor a trace to which a line can be added.
fn other_kind(file: &File) -> io::Result<Option<&'static str>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Some("no regular file"));
    }
    let Some(last) = metadata.len().checked_sub(1) else { return Ok(None) };
    let mut head = [0; BEGINS.len()];
    let mut end = [0];
    let length = file.read_at(&mut head, 0)?;
    if head.get(..length) != Some(BEGINS) {
        return Ok(Some("no trace"));
    }
    file.read_exact_at(&mut end, last)?;
    Ok((end != *b"\n").then_some("a trace that ends within a line"))
}
