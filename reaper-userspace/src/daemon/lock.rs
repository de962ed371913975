//! One acting daemon a node.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Held by the daemon that may act; dropped, or dead, it lets go.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Makes the state directory if need be and takes its lock; `None` if another process holds it.
pub(super) fn take(directory: &Path) -> io::Result<Option<Lock>> {
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or_default();
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(directory.join("lock"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_gets_none_until_the_first_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = take(&state).unwrap();
        assert!(first.is_some());
        assert!(take(&state).unwrap().is_none());
        drop(first);
        assert!(take(&state).unwrap().is_some());
    }
}
