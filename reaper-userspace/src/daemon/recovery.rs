//! Closes the acts that an earlier run left open in the log, with what is really there now.
//!
//! Nothing is finished here: what is left is judged anew by the next looks, like everything else. Only a freezer that
//! the interrupted act may have closed is opened, as somebody may use the cgroup by now.

use crate::audit::{After, Answer, AuditError, ELLIPSIS, Journal, OpenIntent, RecoveredBody};
use crate::cgroupfs::{CgroupDir, Layout, Reopened};
use crate::ident::CgroupPath;
use crate::plan::UNIFIED;
use crate::reap;

use super::clock;

/// Closes the acts one by one; returns how many there were.
///
/// # Errors
/// The log could not be written: then nothing may be done.
pub fn close(
    journal: &mut Journal,
    open: Vec<OpenIntent>,
    boot: &str,
    layout: &Layout,
) -> Result<usize, AuditError> {
    let acts = open.len();
    for intent in open {
        let after = what_is_left(&intent, boot, layout);
        tracing::warn!(leak = intent.leak, txn = intent.txn, ?after, "closing an act that was interrupted");
        journal.recovered(clock::stamp(), intent, RecoveredBody { after })?;
    }
    Ok(acts)
}

fn what_is_left(intent: &OpenIntent, boot: &str, layout: &Layout) -> After {
    if intent.boot != boot {
        return After::Gone;
    }
    if intent.body.target.cgroup_ids.is_empty() {
        return After::Unknown { reason: "it had no cgroup; the next look judges what is there".to_owned() };
    }
    match reopen(intent, layout) {
        Err(reason) => After::Unknown { reason },
        Ok(left) if left.is_empty() => After::Gone,
        Ok(left) => {
            // Somebody else's freeze was there before the act and stays.
            if intent.body.before.frozen == Answer::No {
                for (_, dir) in &left {
                    reap::thaw(dir);
                }
            }
            let what: Vec<String> = left.iter().map(|(name, dir)| format!("{name}:{}", dir.path())).collect();
            After::Remains { what: what.join(", ") }
        }
    }
}

fn reopen<'a>(intent: &OpenIntent, layout: &'a Layout) -> Result<Vec<(&'a str, CgroupDir)>, String> {
    let path = exact(&intent.body.target.path).ok_or("the path in the intent is not exact")?;
    let mut left = vec![];
    for cgroup in &intent.body.target.cgroup_ids {
        let mount = layout
            .hierarchy(cgroup.hierarchy)
            .ok_or_else(|| format!("hierarchy {} is not mounted", cgroup.hierarchy.0))?;
        match mount.reopen(&path, *cgroup) {
            Reopened::Same(dir) if mount.name().is_empty() => left.push((UNIFIED, dir)),
            Reopened::Same(dir) => left.push((mount.name(), dir)),
            Reopened::Gone | Reopened::OtherCgroup(_) => {}
            Reopened::Unavailable(reason) => return Err(reason),
        }
    }
    Ok(left)
}

/// The path, if the text can be no other's: in records bytes that are not UTF-8 are replaced, control bytes are
/// escaped and what is too long is cut, and a path that is not the one that was acted on is always found empty.
fn exact(text: &str) -> Option<CgroupPath> {
    let changed = text.contains([char::REPLACEMENT_CHARACTER, '\\']) || text.ends_with(ELLIPSIS);
    CgroupPath::try_from(text).ok().filter(|_| !changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_path_that_the_record_had_to_change_is_no_answer() {
        let path = |bytes: &[u8]| {
            let raw = std::path::PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
            CgroupPath::try_from(raw).unwrap()
        };
        for name in [&b"/a/not\xffutf8"[..], b"/a/\x1bescape", b"/a/back\\slash"] {
            assert_eq!(exact(&path(name).to_string()), None, "{name:?}");
        }
        assert_eq!(exact("/a/cri-containerd-3f.scope"), Some(path(b"/a/cri-containerd-3f.scope")));
    }
}
