//! Named places between two steps of the protocol, where a test may do to the node what else happens by chance.
//!
//! Only with the feature `adversary`, which the product never has: without it a place is an empty function. Nothing
//! here may change what the protocol does.

/// A place between two steps, in the order in which they are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The cgroups are held, the second proof is not made yet.
    Opened,
    /// The second proof and the durable intent are there.
    Proven,
    /// The freezers are closed.
    Frozen,
    /// The members' numbers are known.
    Listed,
    /// Each number's process is held.
    Held,
    /// The members were listed again.
    Relisted,
    /// Before each signal.
    Signal,
    /// Every signal is sent, the freezers are still closed.
    Signalled,
    /// The freezers are open.
    Thawed,
    /// What was signalled has ended.
    Ended,
    /// Before each removal, check included.
    Remove,
    /// Between the check and the removal.
    Rmdir,
    /// Before each unmount, check included.
    Unmount,
}

#[cfg(feature = "adversary")]
pub use installed::{install, uninstall};

/// Passes a place.
#[cfg(not(feature = "adversary"))]
pub(super) const fn pass(_: Point) {}

#[cfg(feature = "adversary")]
pub(super) use installed::pass;

#[cfg(feature = "adversary")]
mod installed {
    use std::sync::{Mutex, PoisonError};

    use super::Point;

    type Hook = Box<dyn FnMut(Point) + Send>;

    static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

    /// Calls `hook` at every place from now on, on whichever thread passes it.
    pub fn install(hook: impl FnMut(Point) + Send + 'static) {
        *HOOK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }

    /// No hook any more.
    pub fn uninstall() {
        *HOOK.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Passes a place.
    pub(in super::super) fn pass(point: Point) {
        if let Some(hook) = HOOK.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            hook(point);
        }
    }
}

#[cfg(feature = "adversary")]
impl Point {
    /// Every place, in order.
    pub const ALL: [Self; 13] = [
        Self::Opened,
        Self::Proven,
        Self::Frozen,
        Self::Listed,
        Self::Held,
        Self::Relisted,
        Self::Signal,
        Self::Signalled,
        Self::Thawed,
        Self::Ended,
        Self::Remove,
        Self::Rmdir,
        Self::Unmount,
    ];
}
