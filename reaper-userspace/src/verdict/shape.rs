//! Which kind of leak a sighting has the shape of. No opinion on whether it is one: the guards say that.

use crate::fact::{CreateProgress, ProcessEnd, Sighting};
use crate::ident::Lookup;
use crate::leak::{Cause, LeakKind};

pub(super) fn classify(sighting: &Sighting) -> (LeakKind, Cause) {
    if sighting.populated() == Lookup::Found(false) && sighting.processes.is_empty() {
        let cause = if create_was_killed(sighting) { Cause::CreateKilled } else { cause_of_empty(sighting) };
        return (LeakKind::Empty, cause);
    }
    match &sighting.runc_state {
        Lookup::NotFound if only_inits(sighting) && create_unfinished(sighting) => {
            (LeakKind::HalfCreated, Cause::CreateKilled)
        }
        Lookup::Found(state) if state.init.is_none() => (LeakKind::HalfCreated, Cause::CreateKilled),
        Lookup::Found(state) if state.init_alive == Lookup::Found(false) => {
            (LeakKind::Orphaned, Cause::DeleteFailed)
        }
        Lookup::Found(_) | Lookup::NotFound => (LeakKind::Orphaned, Cause::ShimDead),
        Lookup::Unavailable(_) => (LeakKind::Orphaned, Cause::Unknown),
    }
}

fn cause_of_empty(sighting: &Sighting) -> Cause {
    match &sighting.runc_state {
        Lookup::Found(state) if state.init_alive == Lookup::Found(false) => Cause::DeleteFailed,
        Lookup::NotFound
            if matches!(&sighting.bundle, Lookup::Found(bundle)
            if bundle.progress == Lookup::Found(CreateProgress::Started)) =>
        {
            Cause::CreateKilled
        }
        Lookup::NotFound | Lookup::Found(_) | Lookup::Unavailable(_) => Cause::Unknown,
    }
}

/// Seen by the probes; of a failure by itself the runtime cleans up.
fn create_was_killed(sighting: &Sighting) -> bool {
    let end = sighting.failed_create.as_ref().map(|create| create.end);
    matches!(end, Some(ProcessEnd::Signal(_)))
}

/// Create did not finish, or no bundle is left to tell.
fn create_unfinished(sighting: &Sighting) -> bool {
    match &sighting.bundle {
        Lookup::Found(bundle) => bundle.progress == Lookup::Found(CreateProgress::Started),
        Lookup::NotFound => true,
        Lookup::Unavailable(_) => false,
    }
}

fn only_inits(sighting: &Sighting) -> bool {
    let is_init = |key| sighting.runtime_inits.contains(&key);
    !sighting.processes.is_empty() && sighting.members().all(is_init)
}
