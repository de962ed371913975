//! Which processes are believed to be a runtime's.
//!
//! An argv is a claim that anybody can make: believed, it holds back whole namespaces and names sockets to speak to. So
//! only root is believed, and nobody in a container's cgroup, where root may be the container's.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::candidates::Candidate;
use super::scene::Server;
use crate::fact::{RuntimeProcess, RuntimeRole};
use crate::ident::{CgroupPath, Lookup, ProcessKey, Tgid};
use crate::procfs;

/// Cgroups of containers, whose members are not believed.
#[derive(Debug)]
pub(super) struct Containers(BTreeSet<PathBuf>);

/// Keeps the claims of root's processes. One that ended meanwhile cannot be asked: it may have been a command, and need
/// not be a shim any more. No answer is no reason to disbelieve: that would only protect less.
pub(super) fn of_root(
    claims: Vec<RuntimeProcess>,
    is_root: impl Fn(ProcessKey) -> Lookup<bool>,
) -> Vec<RuntimeProcess> {
    let believe = |claim: &RuntimeProcess| match is_root(claim.process.key) {
        Lookup::Found(root) => root,
        Lookup::NotFound => matches!(claim.role, RuntimeRole::Command { .. }),
        Lookup::Unavailable(_) => true,
    };
    claims.into_iter().filter(believe).collect()
}

// === impl Containers ===

impl Containers {
    /// Cgroups that runtimes themselves live in prove nothing about their members, whatever names them: slices,
    /// services, and those of our containerds.
    pub(super) fn of(candidates: &[Candidate], servers: &[Server]) -> Self {
        let ours = servers.iter().filter(|server| server.is_ours()).filter_map(|server| server.fact.found());
        let of_servers: Vec<CgroupPath> = ours
            .filter_map(|fact| procfs::cgroups_of(fact.process.tgid).found().cloned())
            .flatten()
            .collect();
        let cgroups: Vec<&CgroupPath> = candidates.iter().map(|candidate| &candidate.cgroup).collect();
        Self::without(&cgroups, &of_servers)
    }

    fn without(cgroups: &[&CgroupPath], of_servers: &[CgroupPath]) -> Self {
        let fit = |path: &CgroupPath| {
            let shared = path.name().is_none_or(|name| {
                let name = name.to_string_lossy();
                name.ends_with(".slice") || name.ends_with(".service")
            });
            path.depth() >= 2 && !shared && !of_servers.iter().any(|server| path.contains(server))
        };
        Self(cgroups.iter().filter(|path| fit(path)).map(|path| path.as_path().to_owned()).collect())
    }

    /// Whether the process is known to be in one of them.
    pub(super) fn hold(&self, process: Tgid) -> bool {
        procfs::cgroups_of(process).found().is_some_and(|cgroups| cgroups.iter().any(|path| self.cover(path)))
    }

    fn cover(&self, path: &CgroupPath) -> bool {
        path.as_path().ancestors().any(|above| self.0.contains(above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::sample;

    fn path(path: &str) -> CgroupPath {
        CgroupPath::try_from(path).unwrap()
    }

    #[test]
    fn only_root_is_believed_and_no_answer_disbelieves_nobody() {
        let kept = |answer: Lookup<bool>| {
            let claims = vec![sample::shim(), sample::command("create")];
            of_root(claims, |_| answer.clone()).len()
        };
        assert_eq!(kept(Lookup::Found(true)), 2);
        assert_eq!(kept(Lookup::Found(false)), 0);
        assert_eq!(kept(Lookup::NotFound), 1, "a command may have ended");
        assert_eq!(kept(Lookup::Unavailable("EIO".to_owned())), 2);
    }

    #[test]
    fn whoever_is_in_a_containers_cgroup_or_below_is_in_the_container() {
        let containers = Containers::without(&[&path("/k8s.io/a")], &[]);
        assert!(containers.cover(&path("/k8s.io/a")) && containers.cover(&path("/k8s.io/a/b/c")));
        assert!(!containers.cover(&path("/k8s.io")) && !containers.cover(&path("/k8s.io/ab")));
    }

    #[test]
    fn a_cgroup_that_a_runtime_may_live_in_is_no_evidence_whatever_names_it() {
        for named in
            ["/", "/system", "/system.slice/x.slice", "/system.slice/containerd.service", "/kube/node"]
        {
            let containers = Containers::without(&[&path(named)], &[path("/kube/node/containerd")]);
            assert!(containers.0.is_empty(), "{named}");
        }
    }
}
