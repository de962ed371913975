//! Which cgroups can be seen.

use std::path::PathBuf;

use super::check::Check;
use crate::cgroupfs::{HierarchyMount, Layout, LayoutMode};
use crate::fact::Controllers;
use crate::kernel::chain;

pub(super) fn all(roots: &[PathBuf]) -> Vec<Check> {
    match Layout::discover(roots) {
        Ok(layout) => [vec![hierarchies(&layout)], paths(&layout)].concat(),
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
