//! What is remembered across restarts: which cgroups were seen as whose, and since when they look leaked.
//!
//! One small JSON file, replaced atomically. It only ever adds provenance and age to what is looked at anew; losing
//! it costs time, never safety. A file of another boot is ignored: ids and times mean nothing then.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::creates::Creates;
use crate::fact::Seen;
use crate::inventory::{BundleIdentity, Inventory, UnitIdentity};
use crate::kernel::{ReadError, read_path};
use crate::state;
use crate::time::BootTime;

/// 10,000 containers in ten hierarchies stay far below.
const LIMIT: u64 = 32 << 20;
const FILE: &str = "state.json";

/// Everything that is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The kernel's boot id at the time.
    pub boot: String,
    /// Cgroups with provenance.
    pub seen: Vec<Seen>,
    /// Histories of containers' cgroups.
    pub inventory: Inventory,
    /// Creates that failed, one a container; see [`Creates`].
    #[serde(default)]
    pub creates: Creates,
    /// Histories of bundles.
    #[serde(default)]
    pub bundles: Inventory<BundleIdentity>,
    /// Histories of failed scopes.
    #[serde(default)]
    pub units: Inventory<UnitIdentity>,
}

/// Why the state could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file is there and cannot be read.
    #[error("cannot read state file {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ReadError,
    },
    /// The file is not what this program writes.
    #[error("state file {path:?} is damaged; remove it to start without memory")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// It could not be written or put in place.
    #[error("cannot write state file {path:?}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Keeps the memory of a running daemon: at once what says whose a cgroup is, the ages from time to time.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    kept: Memory,
    at: Option<BootTime>,
}

// === impl Keeper ===

impl Keeper {
    /// Ages that are a little too young cost a little time after a restart, and a write at every look costs it always.
    const RARELY: Duration = Duration::from_secs(30);

    /// Writes it if that is worth a write; `last` where no other chance will come.
    pub(super) fn keep(
        &mut self,
        memory: Memory,
        directory: &Path,
        now: BootTime,
        last: bool,
    ) -> Result<(), StateError> {
        let same_cgroups = memory.seen == self.kept.seen && memory.creates == self.kept.creates;
        let soon = self.at.is_some_and(|at| now.since(at) < Self::RARELY);
        if self.at.is_some() && (memory == self.kept || same_cgroups && soon && !last) {
            return Ok(());
        }
        memory.save(directory)?;
        (self.kept, self.at) = (memory, Some(now));
        Ok(())
    }
}

// === impl Memory ===

impl Memory {
    /// Reads what an earlier run of this boot kept; empty if there is none.
    pub fn load(directory: &Path, boot: &str) -> Result<Self, StateError> {
        let path = directory.join(FILE);
        let nothing = Self { boot: boot.to_owned(), ..Self::default() };
        let content = match read_path(&path, LIMIT) {
            Ok(content) => content,
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(nothing),
            Err(source) => return Err(StateError::Read { path, source }),
        };
        let kept: Self =
            serde_json::from_slice(&content).map_err(|source| StateError::Damaged { path, source })?;
        Ok(if kept.boot == boot { kept } else { nothing })
    }

    /// Keeps it for the next run.
    pub fn save(&self, directory: &Path) -> Result<(), StateError> {
        let path = directory.join(FILE);
        let failed = |source| StateError::Write { path: path.clone(), source };
        let content = serde_json::to_vec(self).map_err(|source| failed(source.into()))?;
        if u64::try_from(content.len()).unwrap_or(u64::MAX) > LIMIT {
            // It could not be read again.
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        state::replace(directory, FILE, &content).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{ProcessEnd, sample};
    use crate::inventory::Look;
    use crate::time::BootTime;

    fn memory() -> Memory {
        let mut inventory = Inventory::default();
        inventory.note(&sample::half_created(), Look::Clean, BootTime::from_nanos(7));
        let seen = Seen {
            container: sample::container(),
            cgroup: sample::path(),
            roots: sample::half_created().trees.iter().map(|tree| tree.nodes[0].cgroup).collect(),
            group: None,
        };
        let mut creates = Creates::default();
        creates.note(sample::ended_create(ProcessEnd::Signal(9)));
        Memory { boot: "b1".to_owned(), seen: vec![seen], inventory, creates, ..Memory::default() }
    }

    #[test]
    fn what_was_kept_comes_back_in_the_same_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        memory().save(dir.path()).unwrap();
        assert_eq!(Memory::load(dir.path(), "b1").unwrap(), memory());
        let other = Memory::load(dir.path(), "b2").unwrap();
        assert_eq!((other.boot.as_str(), other.seen.len(), other.inventory.len()), ("b2", 0, 0));
    }

    #[test]
    fn new_cgroups_are_kept_at_once_ages_rarely_and_nothing_new_never() {
        let dir = tempfile::tempdir().unwrap();
        let written = || {
            let there = std::fs::metadata(dir.path().join(FILE)).is_ok();
            if there {
                std::fs::rename(dir.path().join(FILE), dir.path().join("taken")).unwrap();
            }
            there
        };
        let at = |seconds| BootTime::default().after(Duration::from_secs(seconds));
        let mut keeper = Keeper::default();
        let mut keep = |memory: &Memory, seconds, last| {
            keeper.keep(memory.clone(), dir.path(), at(seconds), last).unwrap();
            written()
        };
        let mut older = memory();
        older.inventory.note(&sample::half_created(), Look::Clean, at(9));
        let cgroups = Memory { seen: vec![], ..older.clone() };
        assert!(keep(&memory(), 0, false), "the first");
        assert!(!keep(&memory(), 1000, true), "nothing new");
        assert!(!keep(&older, 1, false), "only an age");
        assert!(keep(&older, 2, true), "the last chance");
        assert!(keep(&cgroups, 3, false), "another cgroup");
        assert!(!keep(&older_of(&cgroups), 4, false), "only an age");
        assert!(keep(&older_of(&cgroups), 40, false), "an age, after a while");
    }

    fn older_of(memory: &Memory) -> Memory {
        let mut older = memory.clone();
        older.inventory.note(&sample::half_created(), Look::Guarded, BootTime::from_nanos(11));
        older
    }

    #[test]
    fn no_file_is_no_memory_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Memory::load(dir.path(), "b1").unwrap().seen.is_empty());
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(FILE)).unwrap();
        assert!(matches!(Memory::load(dir.path(), "b1"), Err(StateError::Read { .. })));
        let dir = tempfile::tempdir().unwrap();
        memory().save(dir.path()).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(dir.path().join(FILE)).unwrap();
        file.set_len(20).unwrap();
        assert!(matches!(Memory::load(dir.path(), "b1"), Err(StateError::Damaged { .. })));
    }
}
