//! The kernel's own check of what an rmdir removes, where there is one.
//!
//! One for the process, as the kernel knows our threads and not our acts. Without it the look before the removal is all
//! there is, and an empty successor of the name can be removed an instant after it was made.

use std::sync::{Arc, Mutex, PoisonError};

use crate::probe::{Guard, GuardError};

static GUARD: Mutex<Option<Arc<Guard>>> = Mutex::new(None);

/// From now on removals go through this guard; `None` for none.
pub fn install(guard: Option<Guard>) {
    *GUARD.lock().unwrap_or_else(PoisonError::into_inner) = guard.map(Arc::new);
}

/// Removes something while nothing but the cgroup with this id can go.
pub(super) fn only<T>(id: u64, removal: impl FnOnce() -> T) -> Result<T, GuardError> {
    let guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match guard {
        Some(guard) => guard.only(id, removal),
        None => Ok(removal()),
    }
}
