//! From the `linux.cgroupsPath` of a spec to the cgroup that the runtime makes of it.
//!
//! Pure. Which of the two notations applies is told by the runtime's options, never by the shape of the text: a
//! cgroupfs path may contain colons. Rules of runc (`libcontainer/specconv/spec_linux.go:CreateCgroupConfig`,
//! opencontainers/cgroups `systemd/common.go:{ExpandSlice,getUnitName}`) and of crun
//! (`src/libcrun/cgroup-systemd.c`), whose child cgroup `container` lies below the scope and needs nothing here.
//!
//! # Invariants
//! - A resolved path is never the root and never leaves it.
//! - What only the runtime itself can know (a relative or empty path starts at the runtime's own cgroup or gets
//!   a name of its choice) is refused.

use std::path::PathBuf;

use crate::ident::{CgroupPath, CgroupPathError};

/// Who makes the cgroup, as the runtime's options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The runtime, by mkdir.
    Cgroupfs,
    /// systemd, asked by runc.
    SystemdRunc,
    /// systemd, asked by crun, which names every unit a scope.
    SystemdCrun,
}

/// Why a `cgroupsPath` names no cgroup that can be known from outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CgroupsPathError {
    #[error("an empty cgroupsPath depends on the runtime's own cgroup and naming")]
    Empty,
    #[error("the relative cgroupsPath {0:?} depends on the runtime's own cgroup")]
    Relative(String),
    #[error("cgroupsPath {0:?} names the root cgroup")]
    Root(String),
    #[error("cgroupsPath {0:?} is not of the form slice:prefix:name")]
    Notation(String),
    #[error("{0:?} is no slice name")]
    Slice(String),
    #[error("{0:?} is no unit name")]
    Unit(String),
    #[error("cgroupsPath is not usable")]
    Path(#[source] CgroupPathError),
}

// === impl Driver ===

impl Driver {
    /// From runc's options: the switch and the runtime's binary, empty for the shim's default (runc).
    pub(super) fn of(systemd_cgroup: bool, binary_name: &str) -> Self {
        let binary = binary_name.rsplit('/').next().unwrap_or_default();
        match (systemd_cgroup, binary.starts_with("crun")) {
            (false, _) => Self::Cgroupfs,
            (true, false) => Self::SystemdRunc,
            (true, true) => Self::SystemdCrun,
        }
    }
}

/// The cgroup that a runtime with this driver makes of `cgroups_path`.
pub(super) fn resolve(cgroups_path: &str, driver: Driver) -> Result<CgroupPath, CgroupsPathError> {
    if cgroups_path.is_empty() {
        return Err(CgroupsPathError::Empty);
    }
    let path = match driver {
        Driver::Cgroupfs => absolute(cgroups_path)?,
        Driver::SystemdRunc | Driver::SystemdCrun => unit_path(cgroups_path, driver)?,
    };
    let path = CgroupPath::try_from(PathBuf::from(path)).map_err(CgroupsPathError::Path)?;
    if path.is_root() { Err(CgroupsPathError::Root(cgroups_path.to_owned())) } else { Ok(path) }
}

fn absolute(cgroups_path: &str) -> Result<String, CgroupsPathError> {
    if cgroups_path.starts_with('/') {
        Ok(cgroups_path.to_owned())
    } else {
        Err(CgroupsPathError::Relative(cgroups_path.to_owned()))
    }
}

fn unit_path(cgroups_path: &str, driver: Driver) -> Result<String, CgroupsPathError> {
    let fields: Vec<&str> = cgroups_path.split(':').collect();
    let &[slice, prefix, name] = fields.as_slice() else {
        return Err(CgroupsPathError::Notation(cgroups_path.to_owned()));
    };
    let unit = if name.strip_suffix(".slice").is_some() && driver != Driver::SystemdCrun {
        name.to_owned()
    } else {
        format!("{prefix}-{name}.scope")
    };
    // systemd refuses such unit names; joined to a path they would be other cgroups.
    if name.is_empty() || unit.contains('/') {
        return Err(CgroupsPathError::Unit(unit));
    }
    let slice = if slice.is_empty() { "system.slice" } else { slice };
    Ok(format!("{}/{unit}", expand_slice(slice)?))
}

/// `a-b.slice` lives in `a.slice`: `/a.slice/a-b.slice`. The root slice `-.slice` is the empty path.
fn expand_slice(slice: &str) -> Result<String, CgroupsPathError> {
    let invalid = || CgroupsPathError::Slice(slice.to_owned());
    let stem = slice.strip_suffix(".slice").filter(|_| !slice.contains('/')).ok_or_else(invalid)?;
    if stem == "-" {
        return Ok(String::new());
    }
    let mut path = String::new();
    let mut name = String::new();
    for component in stem.split('-') {
        if component.is_empty() {
            return Err(invalid());
        }
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(component);
        path.push('/');
        path.push_str(&name);
        path.push_str(".slice");
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolved(text: &str, driver: Driver) -> Option<String> {
        resolve(text, driver).ok().map(|path| path.as_path().to_str().unwrap().to_owned())
    }

    #[test]
    fn the_systemd_notation_names_a_unit_in_an_expanded_slice() {
        for (text, want) in [
            (
                "kubepods-pod1_2.slice:cri-containerd:abc",
                "/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-abc.scope",
            ),
            ("a-b-c.slice:p:n", "/a.slice/a-b.slice/a-b-c.slice/p-n.scope"),
            ("-.slice:p:n", "/p-n.scope"),
            ("system.slice:docker:abc", "/system.slice/docker-abc.scope"),
            (":docker:abc", "/system.slice/docker-abc.scope"),
            ("a.slice::n", "/a.slice/-n.scope"),
            ("a.slice:p:n-m", "/a.slice/p-n-m.scope"),
            ("a.slice:p:x-y.slice", "/a.slice/x-y.slice"),
        ] {
            assert_eq!(resolved(text, Driver::SystemdRunc).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn crun_makes_a_scope_of_every_name() {
        assert_eq!(resolved("a.slice:p:n", Driver::SystemdCrun).as_deref(), Some("/a.slice/p-n.scope"));
        assert_eq!(
            resolved("a.slice:p:x.slice", Driver::SystemdCrun).as_deref(),
            Some("/a.slice/p-x.slice.scope")
        );
    }

    #[test]
    fn what_is_no_systemd_notation_is_refused() {
        for text in [
            "",
            "/a/b",
            "a.slice",
            "a.slice:p",
            "a.slice:p:n:m",
            "a:p:n",
            ".slice:p:n",
            "a--b.slice:p:n",
            "-a.slice:p:n",
            "a-.slice:p:n",
            "a/b.slice:p:n",
            "/a.slice:p:n",
            "..:p:n",
            "a.slice:p:",
            "a.slice:p:../n",
            "a.slice:p:b/c",
            "a.slice:../p:n",
            "--.slice:p:n",
            "a.slice:p:n\n",
        ] {
            assert_eq!(resolved(text, Driver::SystemdRunc), None, "{text}");
        }
    }

    #[test]
    fn a_cgroupfs_path_is_taken_literally_colons_included() {
        for (text, want) in [
            ("/default/t1", "/default/t1"),
            ("/kubepods/burstable/pod1/abc", "/kubepods/burstable/pod1/abc"),
            ("//a/./b//c/", "/a/b/c"),
            ("/kubepods.slice:cri-containerd:abc", "/kubepods.slice:cri-containerd:abc"),
        ] {
            assert_eq!(resolved(text, Driver::Cgroupfs).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn a_path_that_depends_on_the_runtimes_own_cgroup_is_refused() {
        for text in ["", "a/b", "kubepods.slice:cri-containerd:abc", "./a", "../a"] {
            let refused = resolve(text, Driver::Cgroupfs).unwrap_err();
            assert!(refused.to_string().contains("depends on the runtime's own cgroup"), "{refused}");
        }
    }

    #[test]
    fn the_root_and_every_way_out_are_refused() {
        for text in ["/", "//", "/.", "/..", "/a/..", "/a/../..", "/a/../b", "/a\0b"] {
            assert_eq!(resolved(text, Driver::Cgroupfs), None, "{text}");
        }
    }

    #[test]
    fn the_driver_follows_the_options() {
        for (systemd, binary, want) in [
            (false, "", Driver::Cgroupfs),
            (false, "crun", Driver::Cgroupfs),
            (true, "", Driver::SystemdRunc),
            (true, "/usr/bin/runc", Driver::SystemdRunc),
            (true, "/usr/crun/runc", Driver::SystemdRunc),
            (true, "/usr/bin/crun-vm", Driver::SystemdCrun),
        ] {
            assert_eq!(Driver::of(systemd, binary), want, "{binary}");
        }
    }

    proptest! {
        #[test]
        fn a_resolved_path_is_never_the_root_and_never_leaves_it(
            text in prop_oneof!["\\PC{0,40}", "[-/.:a]{0,20}", "[-a.]{0,8}(\\.slice)?:[-/.a]{0,4}:[-/.a]{0,4}(\\.slice)?"],
            driver in prop_oneof![Just(Driver::Cgroupfs), Just(Driver::SystemdRunc), Just(Driver::SystemdCrun)],
        ) {
            if let Ok(path) = resolve(&text, driver) {
                prop_assert!(!path.is_root());
                prop_assert!(path.as_path().is_absolute());
                prop_assert!(path.components().all(|name| name != ".." && name != "."));
            }
        }

        #[test]
        fn systemd_puts_exactly_one_unit_below_the_slice(stem in "[a-z]{1,3}(-[a-z]{1,3}){0,3}", name in "[a-z0-9]{1,8}") {
            let path = resolve(&format!("{stem}.slice:p:{name}"), Driver::SystemdRunc).unwrap();
            prop_assert_eq!(path.parent().unwrap().depth(), stem.split('-').count());
            let unit = format!("p-{name}.scope");
            let slice = format!("{stem}.slice");
            prop_assert_eq!(path.name().unwrap(), unit.as_str());
            let parent = path.parent().unwrap();
            prop_assert_eq!(parent.name().unwrap(), slice.as_str());
        }
    }
}
