//! Intents that nobody reads: what is recorded is another test's business.

use anyhow::Result;
use reaper_userspace::audit::{Intent, Journal};
use reaper_userspace::daemon::clock;
use reaper_userspace::verdict::LeakProof;
use tempfile::TempDir;

use crate::by_hand::{intent_body, node};

/// So many to a file, which is in memory.
const MOST: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Records {
    journal: Journal,
    _directory: TempDir,
    count: u32,
}

// === impl Records ===

impl Records {
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        let (journal, _open) = Journal::open(&directory.path().join("audit.jsonl"), node(), clock::stamp())?;
        Ok(Self { journal, _directory: directory, count: 0 })
    }

    pub(crate) fn intent(&mut self, proof: &LeakProof) -> Result<Intent> {
        if self.count >= MOST {
            *self = Self::new()?;
        }
        self.count += 1;
        Ok(self.journal.intent(clock::stamp(), "leak".to_owned(), intent_body(proof))?)
    }
}
