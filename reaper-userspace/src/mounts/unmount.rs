//! The effect: unmount one mount in the namespace it was found in. Only `reap` calls it.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::PollFlags;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::error::MountsError;
use super::identity::{unique_id, visible_id};
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
    /// Another mount is at its target or covers it, and was left alone. Its id in the mount table, which can be the
    /// one that the lost mount had.
    OtherMount(u32),
}

/// Unmounts exactly this mount, not lazily; innermost mounts first is the caller's order.
///
/// [`MountsError::is_busy`] while something uses it. `umount2` is by name, so between the check and the unmount something
/// can be mounted over the target, which then goes in its place; before Linux 6.8 also a replacement with the same reused
/// id is not noticed. The caller's proof that the bundle is dead has to cover that. Directories on the way are held. At the deadline the thread at work is left behind,
/// named in the error.
pub fn unmount(
    mount: &MountFact,
    start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>,
    deadline: BootTime,
) -> Result<Unmount, MountsError> {
    absolute(&mount.target)?;
    let namespace = Namespace::open(mount.namespace_of, start_of)?;
    let wanted = mount.clone();
    let work = move || unmount_in(&namespace.enter()?, &wanted);
    on_disposable_thread(format!("umount-{}", mount.mount_id), &mount.target, deadline, work)
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

#[expect(clippy::disallowed_methods, reason = "the unmount that reap plans, of the mount with these ids")]
fn unmount_in(namespace: &Entered, mount: &MountFact) -> Result<Unmount, MountsError> {
    let target = mount.target.as_path();
    let failed = |source| MountsError::Unmount { target: target.to_owned(), source };
    let Some(visible) = namespace.table()?.at(target).last().copied() else {
        return Ok(Unmount::AlreadyGone);
    };
    // From here on the way is not walked again: a symbolic link that takes the place of a directory on it leads nowhere.
    let name = namespace.stand_beside(target).map_err(failed)?;
    if !leads_to(&name, mount).map_err(failed)? {
        return Ok(Unmount::OtherMount(visible));
    }
    match rustix::mount::unmount(&name, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Unmount::Unmounted),
        Err(Errno::INVAL | Errno::NOENT) if !namespace.table()?.at(target).contains(&visible) => {
            Ok(Unmount::AlreadyGone)
        }
        Err(source) => Err(failed(source)),
    }
}

/// Whether the name, where the thread stands, leads to this mount: not to one that covers it, nor to one that has its
/// place or its id.
fn leads_to(name: &Path, mount: &MountFact) -> Result<bool, Errno> {
    if visible_id(CWD, name)? != mount.mount_id {
        return Ok(false);
    }
    match mount.unique_id {
        None => Ok(true),
        Some(known) => Ok(unique_id(CWD, name)? == known),
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
