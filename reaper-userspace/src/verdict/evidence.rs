//! What speaks for a leak, in words and with its source: for `explain` and the audit log, not for the decision.

use serde::Serialize;

use crate::fact::{CreateProgress, ProcessEnd, Provenance, Sighting, Subject};
use crate::ident::Lookup;
use crate::inventory::History;
use crate::leak::{LeakKind, Source};
use crate::time::BootTime;

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Where from.
    pub source: Source,
    /// What was seen there.
    pub what: String,
}

pub(super) fn collect(sighting: &Sighting, kind: LeakKind) -> Vec<Evidence> {
    let mut evidence = vec![provenance(sighting)];
    evidence.extend(answers(sighting));
    evidence.extend(files(sighting));
    evidence.extend(failed_create(sighting));
    evidence.push(population(sighting, kind));
    if sighting.unreadable.is_empty() && sighting.in_flight.is_empty() && sighting.supervisors.is_empty() {
        evidence.push(Evidence {
            source: Source::Procfs,
            what: "no runtime command for it is running".to_owned(),
        });
    }
    evidence
}

pub(super) fn of_time(history: &History, now: BootTime) -> Option<Evidence> {
    let clean = history.clean_since?;
    let what = format!("leak-shaped for {:.1?} over {} looks", now.since(clean), history.looks);
    Some(Evidence { source: Source::Inventory, what })
}

fn provenance(sighting: &Sighting) -> Evidence {
    let (source, what) = match &sighting.provenance {
        Provenance::Bundle { path } => {
            (Source::Files, format!("{} names this cgroup", path.join("config.json").display()))
        }
        Provenance::Record { address } => {
            (Source::Containerd, format!("the container's record at {address} names this cgroup"))
        }
        Provenance::Seen { .. } => {
            (Source::Inventory, "seen earlier as this container's cgroup, by id".to_owned())
        }
    };
    Evidence { source, what }
}

pub(super) fn answers<S: Subject>(sighting: &S) -> Vec<Evidence> {
    let runtimes = sighting.runtimes().iter().filter_map(|runtime| {
        let what = match (&runtime.record, &runtime.task) {
            (_, Lookup::NotFound) if runtime.server.is_not_found() => {
                "is not served: no containerd, no tasks"
            }
            (Lookup::Found(()), Lookup::NotFound) => "has a record of the container, but no task",
            (Lookup::NotFound, Lookup::NotFound) => "has neither record nor task of the container",
            (Lookup::Unavailable(_), Lookup::NotFound) => "has no task of the container",
            (_, Lookup::Found(_) | Lookup::Unavailable(_)) => return None,
        };
        Some(Evidence { source: Source::Containerd, what: format!("{} {what}", runtime.address) })
    });
    let shims = sighting.shims().iter().filter(|shim| shim.task.is_not_found()).map(|shim| Evidence {
        source: Source::Shim,
        what: format!("shim {} says it has no such task", shim.process.tgid),
    });
    runtimes.chain(shims).collect()
}

fn files(sighting: &Sighting) -> Vec<Evidence> {
    let mut what = vec![];
    match &sighting.runc_state {
        Lookup::NotFound => what.push("the runtime has no saved state of it".to_owned()),
        Lookup::Found(state) if state.init_alive == Lookup::Found(false) => {
            what.push(format!("{}: init is dead", state.path.display()));
        }
        Lookup::Found(_) | Lookup::Unavailable(_) => {}
    }
    match &sighting.bundle {
        Lookup::Found(bundle) if bundle.progress == Lookup::Found(CreateProgress::Started) => {
            what.push("init.pid is missing: create did not finish".to_owned());
        }
        Lookup::NotFound => what.push("its bundle is gone".to_owned()),
        Lookup::Found(_) | Lookup::Unavailable(_) => {}
    }
    what.into_iter().map(|what| Evidence { source: Source::Files, what }).collect()
}

fn failed_create(sighting: &Sighting) -> Option<Evidence> {
    let create = sighting.failed_create.as_ref()?;
    let how = match create.end {
        ProcessEnd::Signal(signal) => format!("was killed by signal {signal}"),
        ProcessEnd::Code(code) => format!("failed with exit code {code}"),
    };
    let shim = create.shim.map_or_else(String::new, |shim| format!(", under shim {}", shim.tgid));
    let lasted = create.ended.since(create.began);
    let what = format!("create (process {}{shim}) {how} after {lasted:.1?}", create.process.tgid);
    Some(Evidence { source: Source::Kernel, what })
}

fn population(sighting: &Sighting, kind: LeakKind) -> Evidence {
    let hierarchies = sighting.trees.len();
    if !kind.has_processes() {
        let what = format!("unpopulated in all {hierarchies} hierarchies that have it");
        return Evidence { source: Source::Cgroupfs, what };
    }
    let members: Vec<String> = sighting
        .processes
        .iter()
        .take(5)
        .map(|process| {
            let parent = process.parent.map_or_else(String::new, |parent| format!(", parent {parent}"));
            format!("{} {}{parent}", process.key.tgid, process.comm.escape_debug())
        })
        .collect();
    let what = format!(
        "{}{} process(es) in {hierarchies} hierarchies: {}",
        if sighting.is_frozen() { "frozen, " } else { "" },
        sighting.processes.len(),
        members.join("; ")
    );
    Evidence { source: Source::Cgroupfs, what }
}
