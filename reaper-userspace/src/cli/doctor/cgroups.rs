//! Which cgroups can be seen, and how a whole tree is killed here.

use std::path::PathBuf;

use super::check::Check;
use crate::cgroupfs::{CgroupDir, HierarchyMount, Layout, LayoutMode};
use crate::fact::Controllers;
use crate::ident::{CgroupPath, Hierarchy, Lookup, Tgid};
use crate::kernel::chain;
use crate::procfs;

pub(super) fn all(roots: &[PathBuf]) -> Vec<Check> {
    match Layout::discover(roots) {
        Ok(layout) => [vec![hierarchies(&layout)], paths(&layout), vec![kill(&layout)]].concat(),
        Err(error) => {
            let remedy = "mount cgroups, or name where they are with --cgroup-root";
            vec![Check::problem("cgroups", chain(&error), remedy)]
        }
    }
}

fn hierarchies(layout: &Layout) -> Check {
    let mode = match layout.mode() {
        LayoutMode::V1 => "v1",
        LayoutMode::Hybrid => "hybrid",
        LayoutMode::V2 => "v2",
    };
    let (telling, others): (Vec<&HierarchyMount>, Vec<&HierarchyMount>) =
        layout.hierarchies().iter().partition(|mount| mount.controllers() != Controllers::Other);
    let mut parts: Vec<String> = telling.iter().map(|mount| place(mount)).collect();
    if !others.is_empty() {
        parts.push(format!("{} others", others.len()));
    }
    let seen = format!("{mode}: {}", parts.join(", "));
    if telling.is_empty() {
        let remedy = "mount the v1 freezer or cgroup v2: without either, only empty leaks can be reaped";
        return Check::warning("cgroups", seen, remedy);
    }
    Check::ok("cgroups", seen)
}

fn place(mount: &HierarchyMount) -> String {
    let name = match mount.controllers() {
        Controllers::Unified => "v2",
        Controllers::Freezer | Controllers::Other => mount.name(),
    };
    format!("{name} at {}", mount.path().display())
}

/// Seen from inside a namespace, an empty list of members proves nothing: the survey holds everything back then.
fn paths(layout: &Layout) -> Vec<Check> {
    let remedy = "run it in the host's cgroup and PID namespaces, and mount the whole of /sys/fs/cgroup";
    let problem = |warning: &crate::cgroupfs::LayoutWarning| {
        Check::problem("cgroup_paths", warning.to_string(), remedy)
    };
    match layout.warnings() {
        [] => vec![Check::ok("cgroup_paths", "the host's: each hierarchy is seen from its root")],
        warnings => warnings.iter().map(problem).collect(),
    }
}

/// Asks a cgroup that is there, not the kernel's version.
fn kill(layout: &Layout) -> Check {
    const NAME: &str = "cgroup_kill";
    let by_hand = "processes are frozen, listed and killed one by one";
    let Some(unified) = layout.hierarchy(Hierarchy::UNIFIED) else {
        return Check::ok(NAME, format!("no cgroup v2: {by_hand}"));
    };
    match any_cgroup(unified).and_then(|dir| dir.has_kill().map(|has| (has, dir.path().clone()))) {
        Lookup::Found((true, path)) => Check::ok(NAME, format!("there, in {path} of v2")),
        Lookup::Found((false, path)) => Check::ok(NAME, format!("not there, in {path} of v2: {by_hand}")),
        Lookup::NotFound => Check::ok(NAME, "not known: v2 has no cgroup but its root yet"),
        Lookup::Unavailable(reason) => {
            Check::warning(NAME, reason, "run it as root, with the host's /sys/fs/cgroup")
        }
    }
}

/// Our own cgroup, or any other; never the root, which has no such file.
fn any_cgroup(unified: &HierarchyMount) -> Lookup<CgroupDir> {
    let own = Tgid::new(i64::from(std::process::id()))
        .map_or(Lookup::NotFound, |own| procfs::cgroup_of(own, Hierarchy::UNIFIED));
    if let Lookup::Found(path) = own
        && !path.is_root()
    {
        return unified.open(&path);
    }
    let root = unified.open(&CgroupPath::root());
    root.and_then(|root| {
        root.children().and_then(|names| match names.first() {
            Some(name) => root.child(name),
            None => Lookup::NotFound,
        })
    })
}
