//! Whether a live container's init is where its bundle says.
//!
//! A runtime that finds a scope of its container's name may ignore the error and leave the init in its own cgroup (runc
//! before 1.1.6: `UnitExists`): in containerd's service, without the container's limits.
//!
//! # Facts
//! - On v2 there is one hierarchy, and it tells. On v1 and hybrid the runtime writes to each controller's hierarchy by
//!   itself, so those are right even then; what is wrong is systemd's own, `name=systemd` (seen on Debian 12 in both
//!   layouts). `0::` follows it, or says nothing.
//! - A healthy container's devices cgroup can be its pod's slice, and misc is always the root: they tell nothing.

use super::candidates::Candidate;
use super::examine::{Question, runc_state};
use crate::cgroupfs::HierarchyMount;
use crate::fact::{BundleFact, Controllers, MisplacedSighting, Placement};
use crate::ident::{Lookup, ProcessKey, Tgid};
use crate::plan::UNIFIED;
use crate::procfs;

const SYSTEMD: &str = "name=systemd";

/// The container, if its init provably lives and provably is elsewhere. Whatever cannot be told is no report.
pub(super) fn misplaced(question: &Question<'_>, bundle: &BundleFact) -> Option<MisplacedSighting> {
    let Question { candidate, layout, .. } = *question;
    if bundle.cgroup.found() != Some(&candidate.cgroup) {
        return None;
    }
    let init = *bundle.init_pid.found()?;
    let telling = telling(layout.hierarchies())?;
    if placed(init, telling, candidate)?.own {
        return None;
    }
    // The number alone could be anybody's by now.
    let key = living_init(question, bundle, init)?;
    let placements = layout.hierarchies().iter().filter_map(|mount| placed(init, mount, candidate)).collect();
    // And it was the init's own all the time: it lives still.
    procfs::alive(key).found().filter(|alive| **alive)?;
    Some(MisplacedSighting {
        container: candidate.container.clone(),
        bundle: bundle.path.clone(),
        named: candidate.cgroup.clone(),
        init: key,
        placements,
    })
}

/// The hierarchy that systemd makes scopes in; without systemd the one that containers are killed through.
fn telling(mounts: &[HierarchyMount]) -> Option<&HierarchyMount> {
    let of = |wanted| mounts.iter().find(|mount| mount.controllers() == wanted);
    let systemd = mounts.iter().find(|mount| mount.name() == SYSTEMD);
    systemd.or_else(|| of(Controllers::Freezer)).or_else(|| of(Controllers::Unified))
}

fn placed(init: Tgid, mount: &HierarchyMount, candidate: &Candidate) -> Option<Placement> {
    let path = procfs::cgroup_of(init, mount.hierarchy()).found()?.clone();
    let hierarchy = if mount.name().is_empty() { UNIFIED } else { mount.name() }.to_owned();
    let own = candidate.cgroup.contains(&path);
    Some(Placement { hierarchy, path, own })
}

/// The init that the runtime has on record, if it is alive and has this number.
fn living_init(question: &Question<'_>, bundle: &BundleFact, init: Tgid) -> Option<ProcessKey> {
    let state = runc_state(question, &Lookup::Found(bundle.clone()));
    let state = state.found()?;
    state.init.filter(|key| key.tgid == init && state.init_alive == Lookup::Found(true))
}
