//! Unmounts one mount, and says who keeps it when it stays busy.
//!
//! Busy mounts are tried again for a moment: what a process that was just killed held is let go a little after its end.
//! Whoever else holds one is named and left alone.

use std::time::Duration;

use super::Timing;
use super::freezer::pause;
use crate::fact::{MountFact, ProcessFact};
use crate::ident::{Lookup, ProcessKey};
use crate::kernel::chain;
use crate::mounts::{self, MountsError, Unmount};
use crate::procfs;

/// The end of a killed process's mount namespace takes milliseconds.
const PATIENCE: Duration = Duration::from_millis(300);
const WAIT: Duration = Duration::from_millis(10);
/// So many names are enough for a person.
const NAMED: usize = 5;

/// `seen` is what the last look found mounted: nothing else is touched.
pub(super) fn unmount(
    mount: &MountFact,
    seen: Option<&Vec<MountFact>>,
    timing: Timing,
) -> Result<(), String> {
    if !seen.is_some_and(|seen| seen.contains(mount)) {
        return Err("the last look did not find it and it was left alone".to_owned());
    }
    let until = timing.within(PATIENCE);
    loop {
        match mounts::unmount(mount, &procfs::start_of, timing.deadline) {
            Ok(Unmount::Unmounted | Unmount::AlreadyGone) => return Ok(()),
            Ok(Unmount::OtherMount(id)) => return Err(format!("mount {id} is there now and was left alone")),
            Err(error) if error.is_busy() && (timing.now)() < until => pause(WAIT),
            Err(error) => return Err(explain(mount, &error)),
        }
    }
}

fn explain(mount: &MountFact, error: &MountsError) -> String {
    let text = chain(error);
    if error.is_busy() { format!("{text}; held by {}", holders(mount)) } else { text }
}

/// A hint for people: it is read after the fact, and not everything that holds a mount can be seen.
fn holders(mount: &MountFact) -> String {
    let Ok(processes) = procfs::all() else { return "processes that cannot be listed".to_owned() };
    let mut held: Vec<ProcessKey> = mounts::users(&mount.target, &processes);
    // Whoever merely sees it in another namespace holds it only where nobody uses it: a shared mount is seen by many.
    if held.is_empty()
        && let Lookup::Found(elsewhere) = mounts::holders(&mount.target, mount.namespace_of, &processes)
    {
        held.extend(elsewhere.processes);
    }
    let named: Vec<String> = held.iter().take(NAMED).map(|key| name(*key, &processes)).collect();
    match held.len().saturating_sub(named.len()) {
        0 if named.is_empty() => "nobody who can be seen".to_owned(),
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn name(key: ProcessKey, processes: &[ProcessFact]) -> String {
    let comm = processes.iter().find(|process| process.key == key).map(|process| process.comm.escape_debug());
    format!("process {} {}", key.tgid, comm.map_or_else(String::new, |comm| comm.to_string()))
}
