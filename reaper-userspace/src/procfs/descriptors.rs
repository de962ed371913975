//! The sockets that a process holds.

use std::collections::BTreeSet;

use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use super::dir::ProcDir;
use super::error::{ProcfsError, answer};
use crate::ident::{Lookup, ProcessKey};

/// Inodes of all sockets among the descriptors of exactly this incarnation; `NotFound` if it is gone.
///
/// Descriptors that are closed while the list is read are left out, and such that are opened may be.
pub fn sockets(key: ProcessKey) -> Lookup<BTreeSet<u64>> {
    answer(ProcDir::open(key.tgid).and_then(|dir| {
        let sockets = list(&dir, key)?;
        Ok((dir.stat()?.starttime == key.start.get()).then_some(sockets))
    }))
    .and_then(|sockets| sockets.map_or(Lookup::NotFound, Lookup::Found))
}

fn list(dir: &ProcDir, key: ProcessKey) -> Result<BTreeSet<u64>, ProcfsError> {
    let failed = |source| ProcfsError::Descriptors { tgid: key.tgid, source };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = openat(dir.as_fd(), "fd", flags, Mode::empty()).map_err(failed)?;
    let mut found = BTreeSet::new();
    for entry in Dir::read_from(&list).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        match readlinkat(&list, entry.file_name(), Vec::new()) {
            Ok(target) => found.extend(socket(target.as_bytes())),
            // EINVAL: `.` and `..` are no links.
            Err(Errno::NOENT | Errno::INVAL) => {}
            Err(source) => return Err(failed(source)),
        }
    }
    Ok(found)
}

/// `socket:[INODE]` (`net/socket.c:sockfs_dname`).
fn socket(target: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(target).ok()?;
    text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::ident::{StartTicks, Tgid};
    use crate::procfs::start_of;

    #[test]
    fn the_sockets_of_this_process_are_found_and_those_of_another_incarnation_are_not() {
        let (one, _other) = UnixStream::pair().unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", one.as_raw_fd())).unwrap();
        let inode = socket(link.as_os_str().as_encoded_bytes()).unwrap();
        let tgid = Tgid::new(i64::from(std::process::id())).unwrap();
        let start = *start_of(tgid).found().unwrap();
        assert!(sockets(ProcessKey { tgid, start }).found().unwrap().contains(&inode));
        let other = ProcessKey { tgid, start: StartTicks::from_ticks(start.get() + 1) };
        assert_eq!(sockets(other), Lookup::NotFound);
    }

    #[test]
    fn only_sockets_have_the_name_of_one() {
        assert_eq!(socket(b"socket:[12]"), Some(12));
        for other in ["pipe:[12]", "/x/socket:[12]", "socket:[x]", "socket:[12] (deleted)"] {
            assert_eq!(socket(other.as_bytes()), None, "{other}");
        }
    }
}
