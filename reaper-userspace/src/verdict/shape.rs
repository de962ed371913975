//! Which kind of leak a sighting has the shape of. No opinion on whether it is one: the guards say that.

use crate::fact::{CreateProgress, ProcessFact, Sighting};
use crate::ident::Lookup;
use crate::leak::{Cause, LeakKind};

/// File names of runtimes, as the target of `/proc/PID/exe`.
const RUNTIMES: [&str; 3] = ["runc", "crun", "youki"];

/// Runtimes re-execute themselves from a sealed memfd: the link reads `/memfd:runc_cloned:/proc/self/exe (deleted)`.
const MEMFDS: [&str; 3] = ["/memfd:runc", "/memfd:crun", "/memfd:youki"];

pub(super) fn classify(sighting: &Sighting) -> (LeakKind, Cause) {
    if sighting.populated() == Lookup::Found(false) && sighting.processes.is_empty() {
        return (LeakKind::Empty, cause_of_empty(sighting));
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

/// Create did not finish, or no bundle is left to tell.
fn create_unfinished(sighting: &Sighting) -> bool {
    match &sighting.bundle {
        Lookup::Found(bundle) => bundle.progress == Lookup::Found(CreateProgress::Started),
        Lookup::NotFound => true,
        Lookup::Unavailable(_) => false,
    }
}

fn only_inits(sighting: &Sighting) -> bool {
    !sighting.processes.is_empty() && sighting.processes.iter().all(is_runtime_init)
}

/// A stage of `runc init`: still executing the runtime, not the workload. The exe link counts, which a workload
/// cannot forge by its comm or argv.
pub(super) fn is_runtime_init(process: &ProcessFact) -> bool {
    let Some(exe) = &process.exe else { return false };
    let exe = exe.to_string_lossy();
    let name = exe.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let runs_runtime = RUNTIMES.contains(&name) || MEMFDS.iter().any(|memfd| exe.starts_with(memfd));
    runs_runtime && process.argv.get(1).is_some_and(|word| word == "init")
}
