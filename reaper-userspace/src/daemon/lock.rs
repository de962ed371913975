//! One acting daemon a node, and one act at a time: a daemon and a person must not work on the same cgroup at once.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::clock;
use crate::reap::BOUND;
use crate::state;

/// An act asks all sources again, waits for the disk twice and reaps within its bound.
const PATIENCE: Duration = BOUND.saturating_mul(5);
/// A lock that is let go has no notification.
const AGAIN: Duration = Duration::from_millis(20);

/// Held by the daemon that may act; dropped, or dead, it lets go.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Held for one act, by whoever acts.
#[derive(Debug)]
pub struct Alone {
    _lock: Lock,
}

/// Makes the state directory if need be and takes its lock; `None` if another process holds it.
pub(super) fn take(directory: &Path) -> io::Result<Option<Lock>> {
    lock(directory, "lock")
}

/// Waits until nobody else acts; `None` if that takes longer than acts do.
pub async fn alone(directory: &Path) -> io::Result<Option<Alone>> {
    let until = clock::boot().after(PATIENCE);
    loop {
        if let Some(lock) = lock(directory, "act.lock")? {
            return Ok(Some(Alone { _lock: lock }));
        }
        if clock::boot() >= until {
            return Ok(None);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn lock(directory: &Path, name: &str) -> io::Result<Option<Lock>> {
    state::make_directory(directory)?;
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or_default();
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(directory.join(name))?;
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

    #[test]
    fn who_acts_is_alone_and_the_next_one_waits() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let first = alone(dir.path()).await.unwrap().unwrap();
            let waits = tokio::time::timeout(AGAIN.saturating_mul(3), alone(dir.path())).await;
            assert!(waits.is_err(), "{waits:?}");
            let (second, ()) = tokio::join!(alone(dir.path()), async {
                tokio::time::sleep(AGAIN).await;
                drop(first);
            });
            assert!(second.unwrap().is_some());
        });
    }
}
