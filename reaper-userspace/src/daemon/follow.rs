//! Feeds events to the lineage of watched processes, and asks `/proc` where only it knows.

use super::listen::Heard;
use crate::fact::ProcessFact;
use crate::ident::{ProcessKey, Tgid};
use crate::lineage::{Claim, Lineage, Notice};
use crate::procfs;

/// How names of shims begin.
const SHIM: &str = "containerd-shim";

/// Takes one event and says what it meant beyond itself.
pub(super) fn follow(lineage: &mut Lineage, heard: &Heard) -> Option<Notice> {
    lineage.apply(&heard.event, |_| heard.claim.as_deref().cloned())
}

/// What a process says of itself; `None` if it is gone. Runtime commands end within milliseconds, so being late is
/// normal.
pub(super) fn claim(process: ProcessKey) -> Option<Claim> {
    let fact = read(process.tgid).filter(|fact| fact.key == process && !fact.argv.is_empty())?;
    let parent = fact.parent.and_then(read).filter(|parent| parent.comm.starts_with(SHIM));
    Some(Claim { invocation: procfs::invocation(&fact.argv), shim: parent.map(|shim| shim.key) })
}

fn read(tgid: Tgid) -> Option<ProcessFact> {
    procfs::read(tgid).found().cloned()
}
