//! What keeps the program from acting although it is told to, in files of the state directory: a person's pause, a
//! storm, a killed bystander. They survive a restart, and hold for the daemon and for `reap` by hand alike.
//!
//! A file that is there and cannot be read holds: nobody knows what it says.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::audit::Person;
use crate::kernel::{ReadError, chain, read_path};
use crate::leak::HoldKind;
use crate::state;

const LIMIT: u64 = 64 << 10;

/// Those that are files; the lock is the fourth.
const KINDS: [HoldKind; 3] = [HoldKind::Pause, HoldKind::Storm, HoldKind::Bystander];

/// One reason not to act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// For people.
    pub reason: String,
    /// When it began.
    pub since: Timestamp,
    /// When it ends by itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Who wanted it; the program itself if nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Person>,
}

/// The files.
#[derive(Clone, Debug)]
pub struct Holds {
    directory: PathBuf,
}

/// Why a hold was not begun or ended.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The file could not be written or put in place.
    #[error("cannot write {path:?}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file could not be removed.
    #[error("cannot remove {path:?}")]
    Remove {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("{path:?} cannot be read, so it holds; `cgroup-reaper resume` removes it")]
    Read { path: PathBuf, source: ReadError },
    #[error("{path:?} is damaged, so it holds; `cgroup-reaper resume` removes it")]
    Damaged { path: PathBuf, source: serde_json::Error },
}

// === impl Hold ===

impl Hold {
    /// One of the program's own: until a person has looked.
    pub const fn own(reason: String, since: Timestamp) -> Self {
        Self { reason, since, until: None, by: None }
    }
}

impl std::fmt::Display for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reason, since, until, by } = self;
        write!(f, "{reason} (since {since:.0}")?;
        if let Some(until) = until {
            write!(f, ", until {until:.0}")?;
        }
        if let Some(person) = by {
            write!(f, ", by {person}")?;
        }
        f.write_str(")")
    }
}

// === impl Holds ===

impl Holds {
    /// Those of this state directory.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Begins a hold, or replaces the one of this kind.
    pub fn begin(&self, kind: HoldKind, hold: &Hold) -> Result<(), HoldError> {
        let failed = |source| HoldError::Write { path: self.path(kind), source };
        let content = serde_json::to_vec(hold).map_err(|error| failed(error.into()))?;
        state::make_directory(&self.directory)
            .and_then(|()| state::replace(&self.directory, &name(kind), &content))
            .map_err(failed)
    }

    /// Ends a hold; false if there was none.
    pub fn end(&self, kind: HoldKind) -> Result<bool, HoldError> {
        let path = self.path(kind);
        match state::remove(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(HoldError::Remove { path, source }),
        }
    }

    /// Ends all of them; returns which there were.
    pub fn end_all(&self) -> Result<Vec<HoldKind>, HoldError> {
        let mut ended = vec![];
        for kind in KINDS {
            if self.end(kind)? {
                ended.push(kind);
            }
        }
        Ok(ended)
    }

    /// Those that hold at this time.
    pub fn in_force(&self, now: Timestamp) -> Vec<(HoldKind, Hold)> {
        let holds = |kind| match self.read(kind) {
            Ok(hold) => hold.filter(|hold| hold.until.is_none_or(|until| until > now)),
            Err(error) => Some(Hold::own(chain(&error), now)),
        };
        KINDS.iter().filter_map(|kind| Some((*kind, holds(*kind)?))).collect()
    }

    fn read(&self, kind: HoldKind) -> Result<Option<Hold>, Unreadable> {
        let path = self.path(kind);
        match read_path(&path, LIMIT) {
            Ok(content) => serde_json::from_slice(&content)
                .map(Some)
                .map_err(|source| Unreadable::Damaged { path, source }),
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(None),
            Err(source) => Err(Unreadable::Read { path, source }),
        }
    }

    fn path(&self, kind: HoldKind) -> PathBuf {
        self.directory.join(name(kind))
    }
}

fn name(kind: HoldKind) -> String {
    format!("{kind}.json")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests damage files that they made")]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pause(until: Option<Timestamp>) -> Hold {
        let by = Some(Person { uid: 0, loginuid: Some(1000) });
        Hold { reason: "kernel update".to_owned(), since: at(60), until, by }
    }

    #[test]
    fn a_hold_lasts_until_it_expires_or_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let holds = Holds::new(&dir.path().join("state"));
        assert_eq!(holds.in_force(at(0)), []);
        holds.begin(HoldKind::Pause, &pause(Some(at(120)))).unwrap();
        assert_eq!(holds.in_force(at(119)), [(HoldKind::Pause, pause(Some(at(120))))]);
        assert_eq!(holds.in_force(at(120)), []);
        holds.begin(HoldKind::Pause, &pause(None)).unwrap();
        holds.begin(HoldKind::Storm, &Hold::own("101 leaks".to_owned(), at(1))).unwrap();
        assert_eq!(holds.in_force(at(1_000_000)).len(), 2);
        assert_eq!(holds.end_all().unwrap(), [HoldKind::Pause, HoldKind::Storm]);
        assert_eq!(holds.in_force(at(0)), []);
        assert!(!holds.end(HoldKind::Pause).unwrap());
    }

    #[test]
    fn what_cannot_be_read_holds() {
        let dir = tempfile::tempdir().unwrap();
        let holds = Holds::new(dir.path());
        std::fs::write(dir.path().join("pause.json"), "{\"rea").unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.path().join("storm.json")).unwrap();
        let held = holds.in_force(at(0));
        assert_eq!(held.len(), 2, "{held:?}");
        assert!(
            held[0].1.reason.contains("damaged") && held[1].1.reason.contains("cannot be read"),
            "{held:?}"
        );
        assert_eq!(holds.end_all().unwrap().len(), 2);
    }

    #[test]
    fn a_hold_says_who_and_how_long() {
        assert_eq!(
            pause(Some(at(120))).to_string(),
            "kernel update (since 1970-01-01T00:01:00Z, until 1970-01-01T00:02:00Z, by uid 0, login uid 1000)"
        );
    }
}
