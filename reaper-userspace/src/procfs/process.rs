//! What a process is and whether it lives.

use std::fs;
use std::path::Path;

use ::procfs::process::Stat;

use super::dir::ProcDir;
use super::error::{ProcfsError, answer};
use crate::fact::{FileId, ProcessFact, ProcessState};
use crate::ident::{Lookup, ProcessKey, StartTicks, Tgid};

/// Longest argument vector that is looked at, in bytes and in words. Runtimes' own are far below.
const ARGV_BYTES: u64 = 64 << 10;
const ARGV_WORDS: usize = 256;
/// `PF_KTHREAD` of `linux/sched.h`.
const PF_KTHREAD: u32 = 0x0020_0000;

/// When the process that has this number now started.
pub fn start_of(tgid: Tgid) -> Lookup<StartTicks> {
    answer(ProcDir::open(tgid).and_then(|dir| dir.stat()).map(|stat| StartTicks::from_ticks(stat.starttime)))
}

/// What a process's `stat` says of it when it is held.
#[derive(Debug)]
pub(super) struct Birth {
    /// When it started.
    pub(super) start: StartTicks,
    /// Its parent's number; `None` for 0.
    pub(super) parent: Option<Tgid>,
    /// Its name.
    pub(super) comm: String,
}

/// Of the process that has this number now. Held by nothing: the caller has a pidfd, and asks it afterwards.
pub(super) fn birth(tgid: Tgid) -> Lookup<Birth> {
    answer(ProcDir::stat_by_number(tgid).map(|stat| Birth {
        start: StartTicks::from_ticks(stat.starttime),
        parent: Tgid::new(stat.ppid.into()),
        comm: stat.comm,
    }))
}

/// The process that has this number now; a zombie is one too.
///
/// The argument vector is cut at 64 KiB and 256 words. Reading it takes the process's own memory, so on a node in
/// trouble this call can block: never call it where nothing may block.
pub fn read(tgid: Tgid) -> Lookup<ProcessFact> {
    answer(ProcDir::open(tgid).and_then(|dir| fact(tgid, &dir)))
}

/// Every process that `/proc` lists, in order of number; those that end meanwhile are left out.
///
/// A process in the middle of an exec has no argument vector for a moment (`fs/binfmt_elf.c` sets it last): one look
/// can miss what the next one sees.
///
/// Fails if one that did not end cannot be read, or if processes are hidden: a part of the processes is no list.
pub fn all() -> Result<Vec<ProcessFact>, ProcfsError> {
    select(Some)
}

/// As [`all`], keeping only what `pick` makes of each: a node has thousands, each with up to 64 KiB of arguments.
pub(super) fn select<T>(pick: impl Fn(ProcessFact) -> Option<T>) -> Result<Vec<T>, ProcfsError> {
    let mut tgids = numbers(Path::new("/proc"))?;
    tgids.sort_unstable();
    if tgids.first() != Some(&Tgid::INIT) {
        return Err(ProcfsError::HidesInit);
    }
    let mut picked = Vec::new();
    for tgid in tgids {
        match ProcDir::open(tgid).and_then(|dir| fact(tgid, &dir)) {
            Ok(fact) => picked.extend(pick(fact)),
            Err(ProcfsError::Absent { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(picked)
}

/// Whether exactly this incarnation still runs code; never [`Lookup::NotFound`].
///
/// A zombie does not, unless it is the leader of a thread group with other threads.
pub fn alive(key: ProcessKey) -> Lookup<bool> {
    match answer(ProcDir::open(key.tgid).and_then(|dir| dir.stat())) {
        Lookup::Found(stat) => {
            Lookup::Found(StartTicks::from_ticks(stat.starttime) == key.start && runs(&stat))
        }
        Lookup::NotFound => Lookup::Found(false),
        Lookup::Unavailable(reason) => Lookup::Unavailable(reason),
    }
}

/// The file that this incarnation executes; `Found(None)` if it executes none or we may not see it.
pub fn exe_file(key: ProcessKey) -> Lookup<Option<FileId>> {
    answer(ProcDir::open(key.tgid).and_then(|dir| {
        let file = dir.exe_file()?;
        Ok((dir.stat()?.starttime == key.start.get()).then_some(file))
    }))
    .and_then(|file| file.map_or(Lookup::NotFound, Lookup::Found))
}

/// Whether the file that this incarnation executes is an overlay's; `Found(None)` as in [`exe_file`].
pub fn exe_on_overlay(key: ProcessKey) -> Lookup<Option<bool>> {
    answer(ProcDir::open(key.tgid).and_then(|dir| {
        let overlay = dir.exe_on_overlay()?;
        Ok((dir.stat()?.starttime == key.start.get()).then_some(overlay))
    }))
    .and_then(|overlay| overlay.map_or(Lookup::NotFound, Lookup::Found))
}

/// Whether this incarnation was started by root and acts as root, in terms of our user namespace.
///
/// Both ids count: a set-user-id program acts as root and has the arguments that anybody gave it. The owner of
/// `/proc/PID` would be no evidence, and neither are the ids that the process sees in a user namespace of its own.
pub fn is_root(key: ProcessKey) -> Lookup<bool> {
    answer(ProcDir::open(key.tgid).and_then(|dir| {
        let status = dir.read("status")?;
        Ok((dir.stat()?.starttime == key.start.get()).then(|| root_ids(&status)))
    }))
    .and_then(|ids| match ids {
        None => Lookup::NotFound,
        Some(Some(root)) => Lookup::Found(root),
        Some(None) => Lookup::Unavailable(format!("status of process {} names no user", key.tgid)),
    })
}

/// `Uid:` of `fs/proc/array.c:task_state`: real, effective, saved and file system id.
fn root_ids(status: &[u8]) -> Option<bool> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut ids = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    Some((ids.next()?, ids.next()?) == ("0", "0"))
}

/// The kernel function in which the process's leader waits; `NotFound` if it does not wait or is gone.
pub fn wait_channel(tgid: Tgid) -> Lookup<String> {
    match answer(ProcDir::open(tgid).and_then(|dir| dir.read("wchan"))) {
        Lookup::Found(name) => match name.trim_ascii() {
            b"" | b"0" => Lookup::NotFound,
            name => Lookup::Found(String::from_utf8_lossy(name).into_owned()),
        },
        Lookup::NotFound => Lookup::NotFound,
        Lookup::Unavailable(reason) => Lookup::Unavailable(reason),
    }
}

fn numbers(proc: &Path) -> Result<Vec<Tgid>, ProcfsError> {
    let mut tgids = Vec::new();
    for entry in fs::read_dir(proc).map_err(ProcfsError::List)? {
        let name = entry.map_err(ProcfsError::List)?.file_name();
        tgids.extend(name.to_str().and_then(|name| name.parse().ok()).and_then(Tgid::new));
    }
    Ok(tgids)
}

fn fact(tgid: Tgid, dir: &ProcDir) -> Result<ProcessFact, ProcfsError> {
    let stat = dir.stat()?;
    Ok(ProcessFact {
        key: ProcessKey { tgid, start: StartTicks::from_ticks(stat.starttime) },
        parent: Tgid::new(stat.ppid.into()),
        state: state(stat.state),
        exe: dir.exe()?,
        argv: words(&dir.read_prefix("cmdline", ARGV_BYTES)?),
        kernel_thread: stat.flags & PF_KTHREAD != 0,
        comm: stat.comm,
    })
}

const fn state(letter: char) -> ProcessState {
    match letter {
        'R' => ProcessState::Running,
        'S' => ProcessState::Sleeping,
        'D' => ProcessState::Uninterruptible,
        'T' | 't' => ProcessState::Stopped,
        'Z' => ProcessState::Zombie,
        'X' | 'x' => ProcessState::Dead,
        _ => ProcessState::Other,
    }
}

fn runs(stat: &Stat) -> bool {
    match state(stat.state) {
        ProcessState::Dead => false,
        ProcessState::Zombie => stat.num_threads > 1,
        ProcessState::Running
        | ProcessState::Sleeping
        | ProcessState::Uninterruptible
        | ProcessState::Stopped
        | ProcessState::Other => true,
    }
}

/// Words end with a NUL each; the last may lack it if the process has rewritten its title.
fn words(cmdline: &[u8]) -> Vec<String> {
    let cmdline = cmdline.strip_suffix(b"\0").unwrap_or(cmdline);
    if cmdline.is_empty() {
        return Vec::new();
    }
    cmdline
        .split(|byte| *byte == 0)
        .take(ARGV_WORDS)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::procfs::FromRead as _;
    use proptest::prelude::*;

    fn stat(comm: &[u8], state: char, threads: u32) -> Stat {
        let mut line = b"12 (".to_vec();
        line.extend_from_slice(comm);
        let zeros = " 0".repeat(30);
        let tail = format!(") {state} 7 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711{zeros}\n");
        line.extend_from_slice(tail.as_bytes());
        Stat::from_read(line.as_slice()).unwrap()
    }

    #[test]
    fn empty_words_are_words_and_no_command_line_is_none() {
        assert_eq!(words(b""), Vec::<String>::new());
        assert_eq!(words(b"a\0\0-b\0"), ["a", "", "-b"]);
        assert_eq!(words(b"a title without an end"), ["a title without an end"]);
        assert_eq!(words(&b"x\0".repeat(1000)).len(), ARGV_WORDS);
    }

    #[test]
    fn root_is_whoever_was_root_before_and_acts_as_root() {
        let ids = |line: &str| root_ids(format!("Name:\tx\nUid:\t{line}\nGid:\t0\t0\t0\t0\n").as_bytes());
        assert_eq!(ids("0\t0\t0\t0"), Some(true));
        assert_eq!(ids("1000\t0\t0\t0"), Some(false), "a set-user-id program");
        assert_eq!(ids("0\t1000\t0\t0"), Some(false));
        assert_eq!(ids("100000\t100000\t0\t0"), Some(false), "root of a user namespace");
        assert_eq!(root_ids(b"Name:\tUid: 0 0\n"), None);
    }

    #[test]
    fn a_zombie_runs_only_through_its_other_threads() {
        assert!(!runs(&stat(b"x", 'Z', 1)));
        assert!(runs(&stat(b"x", 'Z', 2)));
        assert!(!runs(&stat(b"x", 'X', 1)));
        assert!(runs(&stat(b"x", 'D', 1)));
    }

    proptest! {
        #[test]
        fn no_comm_moves_the_other_fields(comm in proptest::collection::vec(1u8..=255, 0..16)) {
            let read = stat(&comm, 'S', 3);
            prop_assert_eq!((read.state, read.ppid, read.num_threads, read.starttime), ('S', 7, 3, 4711));
            prop_assert_eq!(read.comm, String::from_utf8_lossy(&comm).into_owned());
        }
    }
}
