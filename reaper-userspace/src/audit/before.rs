//! The state of a target before the act, bounded: a container chooses how many processes it has and what they are
//! called.

use serde::{Deserialize, Serialize};

use super::bound::{MAX_NAME, MAX_PROCESSES, short};
use super::chain::Digest;
use crate::fact::{ProcessFact, ProcessState};
use crate::ident::Lookup;

/// The answer to a yes-or-no question. No answer is not "no".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Nobody could tell.
    Unknown,
}

/// What was there before the first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Whether any task was in any tree.
    pub populated: Answer,
    /// Whether the cgroup was frozen.
    pub frozen: Answer,
    /// Members, at most 256.
    pub processes: Vec<ProcessRecord>,
    /// Members that are not written out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

/// One process, by incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Thread group id.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub start: u64,
    /// `comm`, at most 256 bytes.
    pub comm: String,
    /// Target of `/proc/PID/exe`, at most 256 bytes; absent for kernel threads and zombies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// First word of the argument vector, at most 256 bytes; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv0: Option<String>,
    /// SHA-256 of all words, each followed by a NUL as in `/proc/PID/cmdline`; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv_sha256: Option<Digest>,
    /// Scheduler state as `ps` shows it: R, S, D, T, Z, X, or `?`.
    pub state: char,
}

// === impl Answer ===

impl From<&Lookup<bool>> for Answer {
    fn from(lookup: &Lookup<bool>) -> Self {
        match lookup {
            Lookup::Found(true) => Self::Yes,
            Lookup::Found(false) => Self::No,
            Lookup::NotFound | Lookup::Unavailable(_) => Self::Unknown,
        }
    }
}

// === impl Before ===

impl Before {
    /// Writes out the first 256 processes and counts the rest.
    pub fn new(populated: Answer, frozen: Answer, processes: &[ProcessFact]) -> Self {
        Self {
            populated,
            frozen,
            processes: processes.iter().take(MAX_PROCESSES).map(ProcessRecord::from).collect(),
            omitted: processes.len().saturating_sub(MAX_PROCESSES),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) const fn is_zero(count: &usize) -> bool {
    *count == 0
}

// === impl ProcessRecord ===

impl From<&ProcessFact> for ProcessRecord {
    fn from(process: &ProcessFact) -> Self {
        let words = process.argv.iter().flat_map(|word| [word.as_bytes(), b"\0"]);
        Self {
            pid: process.key.tgid.get(),
            start: process.key.start.get(),
            comm: short(&process.comm, MAX_NAME),
            exe: process.exe.as_ref().map(|exe| short(&exe.to_string_lossy(), MAX_NAME)),
            argv0: process.argv.first().map(|word| short(word, MAX_NAME)),
            argv_sha256: (!process.argv.is_empty()).then(|| Digest::of(words)),
            state: letter(process.state),
        }
    }
}

const fn letter(state: ProcessState) -> char {
    match state {
        ProcessState::Running => 'R',
        ProcessState::Sleeping => 'S',
        ProcessState::Uninterruptible => 'D',
        ProcessState::Stopped => 'T',
        ProcessState::Zombie => 'Z',
        ProcessState::Dead => 'X',
        ProcessState::Other => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{ProcessKey, StartTicks, Tgid};

    fn process(argv: &[&str]) -> ProcessFact {
        ProcessFact {
            key: ProcessKey { tgid: Tgid::new(7).unwrap(), start: StartTicks::from_ticks(9) },
            parent: None,
            comm: "sh".to_owned(),
            state: ProcessState::Uninterruptible,
            exe: None,
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            kernel_thread: false,
        }
    }

    #[test]
    fn of_the_arguments_only_the_first_and_a_hash_are_kept() {
        let record = ProcessRecord::from(&process(&["mysql", "--password=hunter2"]));
        let json = serde_json::to_string(&record).unwrap();
        assert!(!json.contains("hunter2"), "{json}");
        assert_eq!(record.argv0.as_deref(), Some("mysql"));
        assert_eq!(record.argv_sha256, Some(Digest::of([b"mysql\0--password=hunter2\0".as_slice()])));
        assert_eq!(ProcessRecord::from(&process(&[])).argv_sha256, None);
    }

    #[test]
    fn what_a_container_chooses_is_bounded() {
        let long = "ä".repeat(4000);
        let many = vec![process(&[&long]); 1000];
        let before = Before::new(Answer::Yes, Answer::No, &many);
        assert_eq!((before.processes.len(), before.omitted), (256, 744));
        let argv0 = before.processes[0].argv0.clone().unwrap();
        assert!(argv0.len() <= 256 && argv0.ends_with("ä…"), "{argv0}");
    }

    #[test]
    fn no_answer_is_not_a_no() {
        assert_eq!(Answer::from(&Lookup::NotFound), Answer::Unknown);
        assert_eq!(Answer::from(&Lookup::Unavailable("timeout".to_owned())), Answer::Unknown);
        assert_eq!(Answer::from(&Lookup::Found(false)), Answer::No);
    }
}
