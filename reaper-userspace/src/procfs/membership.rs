//! Which cgroup a process is in.

use super::dir::ProcDir;
use super::error::{ProcfsError, answer};
use crate::ident::{CgroupPath, Hierarchy, Lookup, Tgid};
use crate::kernel::{Membership, parse_memberships};

/// The cgroup of the process that has this number now, in one hierarchy, seen from our cgroup namespace.
///
/// `NotFound` if there is no such process, or if it has no line for the hierarchy. `Unavailable` if the cgroup is
/// outside our cgroup namespace. A zombie shows its last cgroup on v2 and `/` on v1. The ` (deleted)` that the
/// kernel appends for a removed cgroup is kept as read, so that the path equals no live cgroup's path, least of
/// all that of a successor.
pub fn cgroup_of(tgid: Tgid, hierarchy: Hierarchy) -> Lookup<CgroupPath> {
    match answer(path_in(tgid, hierarchy)) {
        Lookup::Found(Some(path)) => Lookup::Found(path),
        Lookup::Found(None) | Lookup::NotFound => Lookup::NotFound,
        Lookup::Unavailable(reason) => Lookup::Unavailable(reason),
    }
}

/// All cgroups of the process that has this number now, as far as they are inside our cgroup namespace.
pub fn cgroups_of(tgid: Tgid) -> Lookup<Vec<CgroupPath>> {
    let read = || {
        let text = ProcDir::open(tgid)?.read("cgroup")?;
        parse_memberships(&text).map_err(|source| ProcfsError::Memberships { tgid, source })
    };
    let named =
        |lines: Vec<Membership>| lines.into_iter().filter_map(|line| CgroupPath::try_from(line.path).ok());
    answer(read()).map(|lines| named(lines).collect())
}

fn path_in(tgid: Tgid, hierarchy: Hierarchy) -> Result<Option<CgroupPath>, ProcfsError> {
    let text = ProcDir::open(tgid)?.read("cgroup")?;
    parse_memberships(&text)
        .map_err(|source| ProcfsError::Memberships { tgid, source })?
        .into_iter()
        .find(|line| line.hierarchy == hierarchy)
        .map(|line| CgroupPath::try_from(line.path))
        .transpose()
        .map_err(|source| ProcfsError::CgroupPath { tgid, source })
}
