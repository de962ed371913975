//! The effect: unmount one mount in the namespace it was found in. Only `reap` calls it.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::PollFlags;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::error::MountsError;
use super::namespace::{Entered, Namespace};
use super::table::absolute;
use crate::fact::MountFact;
use crate::ident::{Lookup, StartTicks, Tgid};
use crate::kernel::until;
use crate::time::BootTime;

/// What became of a mount that was to be unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// We unmounted it.
    Unmounted,
    /// Nothing is mounted at its target any more.
    AlreadyGone,
    /// Another mount, with this id, is at its target or covers it, and was left alone.
    OtherMount(u32),
}

/// Unmounts exactly this mount, not lazily; innermost mounts first is the caller's order.
///
/// [`MountsError::is_busy`] while something uses it. The kernel reuses mount ids, so the id tells a replaced mount
/// only while both exist or another took the number; the caller's proof that the bundle is dead covers the rest.
/// At the deadline the thread at work is left behind, named in the error.
pub fn unmount(
    mount: &MountFact,
    start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>,
    deadline: BootTime,
) -> Result<Unmount, MountsError> {
    absolute(&mount.target)?;
    let namespace = Namespace::open(mount.namespace_of, start_of)?;
    let (target, id) = (mount.target.clone(), mount.mount_id);
    let work = move || unmount_in(&namespace.enter()?, &target, id);
    on_disposable_thread(format!("umount-{id}"), &mount.target, deadline, work)
}

/// Runs the work on a thread of its own: it changes its thread's namespace for good, and it may never return.
fn on_disposable_thread(
    name: String,
    target: &Path,
    deadline: BootTime,
    work: impl FnOnce() -> Result<Unmount, MountsError> + Send + 'static,
) -> Result<Unmount, MountsError> {
    let target = || PathBuf::from(target);
    let failed = |source| MountsError::Thread { target: target(), thread: name.clone(), source };
    // The end of the thread, a panic too, closes the writing end.
    let (ended, alive) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let work = move || {
        let _alive = alive;
        work()
    };
    let thread = thread::Builder::new().name(name.clone()).spawn(work).map_err(failed)?;
    if !until(ended.as_fd(), PollFlags::IN, deadline).map_err(|errno| failed(errno.into()))? {
        return Err(MountsError::Deadline { target: target(), thread: name });
    }
    match thread.join() {
        Ok(result) => result,
        Err(_panic) => Err(MountsError::Panicked { target: target(), thread: name }),
    }
}

#[expect(clippy::disallowed_methods, reason = "the unmount that reap plans, of the mount with this id")]
fn unmount_in(namespace: &Entered, target: &Path, id: u32) -> Result<Unmount, MountsError> {
    match namespace.table()?.at(target).last() {
        None => return Ok(Unmount::AlreadyGone),
        Some(visible) if *visible != id => return Ok(Unmount::OtherMount(*visible)),
        Some(_) => {}
    }
    let failed = |source| MountsError::Unmount { target: target.to_owned(), source };
    if let Some(visible) = visible_mount(target).map_err(failed)?
        && visible != id
    {
        return Ok(Unmount::OtherMount(visible));
    }
    match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Unmount::Unmounted),
        Err(source @ (Errno::INVAL | Errno::NOENT)) => {
            if namespace.table()?.at(target).contains(&id) {
                Err(failed(source))
            } else {
                Ok(Unmount::AlreadyGone)
            }
        }
        Err(source) => Err(failed(source)),
    }
}

/// Which mount the path leads to, without asking its filesystem; `None` before Linux 5.8, and for a path that does
/// not lead anywhere.
fn visible_mount(target: &Path) -> Result<Option<u32>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match statx(CWD, target, flags, StatxFlags::MNT_ID) {
        Ok(found) => {
            let told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
            Ok(told.then(|| u32::try_from(found.stx_mnt_id).unwrap_or(u32::MAX)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_does_not_end_is_left_behind_and_named() {
        let (release, held) = mpsc::channel::<()>();
        let work = move || {
            let _released = held.recv();
            Ok(Unmount::Unmounted)
        };
        let past = BootTime::from_nanos(1);
        let error = on_disposable_thread("umount-7".to_owned(), Path::new("/x"), past, work).unwrap_err();
        assert!(error.is_deadline() && error.to_string().contains("umount-7"), "{error}");
        drop(release);
    }

    #[test]
    fn a_panic_is_an_error_and_does_not_wait_for_the_deadline() {
        let never = BootTime::from_nanos(u64::MAX);
        let work = || panic!("on purpose");
        let error = on_disposable_thread("umount-8".to_owned(), Path::new("/x"), never, work).unwrap_err();
        assert!(matches!(error, MountsError::Panicked { .. }), "{error}");
    }
}
