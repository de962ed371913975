//! The nodes as data. What each of them shows, measured, is in docs/kernels.md.

use anyhow::Context as _;

/// How a node mounts cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cgroups {
    /// v2 alone, which every release here boots with.
    V2,
    /// v1 controllers, and v2 without controllers beside them.
    Hybrid,
    /// v1 alone.
    V1,
}

/// What a disk is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    /// Its directory in the store.
    pub(super) name: &'static str,
    /// Debian's release.
    pub(super) suite: &'static str,
    /// The suite that the kernel comes from.
    pub(super) kernel_suite: &'static str,
}

/// One machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) cgroups: Cgroups,
    disk: Disk,
}

const BOOKWORM: Disk = disk("bookworm", "bookworm", "bookworm");

pub(super) const ALL: [Node; 7] = [
    Node {
        name: "bullseye",
        what: "Debian 11: kernel 5.10, systemd 247, containerd 1.4, runc 1.0-rc93",
        cgroups: Cgroups::V2,
        disk: disk("bullseye", "bullseye", "bullseye"),
    },
    Node {
        name: "bookworm",
        what: "Debian 12: kernel 6.1, systemd 252, containerd 1.6, runc 1.1.5",
        cgroups: Cgroups::V2,
        disk: BOOKWORM,
    },
    Node {
        name: "bookworm-hybrid",
        what: "Debian 12 with systemd.unified_cgroup_hierarchy=0",
        cgroups: Cgroups::Hybrid,
        disk: BOOKWORM,
    },
    Node {
        name: "bookworm-v1",
        what: "Debian 12 with systemd.legacy_systemd_cgroup_controller=1 as well",
        cgroups: Cgroups::V1,
        disk: BOOKWORM,
    },
    Node {
        name: "bookworm-backports",
        what: "Debian 12 with the kernel of its backports, 6.12",
        cgroups: Cgroups::V2,
        disk: disk("bookworm-backports", "bookworm", "bookworm-backports"),
    },
    Node {
        name: "trixie",
        what: "Debian 13: kernel 6.12, systemd 257, containerd 1.7, runc 1.1.15",
        cgroups: Cgroups::V2,
        disk: disk("trixie", "trixie", "trixie"),
    },
    Node {
        name: "sid",
        what: "Debian unstable: kernel 7.x, systemd 26x, containerd 2.x, runc 1.3",
        cgroups: Cgroups::V2,
        disk: disk("sid", "sid", "sid"),
    },
];

const fn disk(name: &'static str, suite: &'static str, kernel_suite: &'static str) -> Disk {
    Disk { name, suite, kernel_suite }
}

pub(super) fn find(name: &str) -> anyhow::Result<&'static Node> {
    let names = || ALL.map(|node| node.name).join(", ");
    let found = ALL.iter().find(|node| node.name == name);
    found.with_context(|| format!("no node is called {name}; there are {}", names()))
}

// === impl Cgroups ===

impl Cgroups {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
            Self::V1 => "v1",
        }
    }

    /// Words for systemd on the kernel's command line.
    const fn words(self) -> &'static str {
        match self {
            Self::V2 => "",
            Self::Hybrid => " systemd.unified_cgroup_hierarchy=0",
            Self::V1 => " systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1",
        }
    }
}

// === impl Node ===

impl Node {
    pub(super) const fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The kernel's command line. A getty would hang up the console.
    pub(super) fn command_line(&self) -> String {
        format!(
            "console=ttyS0 root=/dev/vda rw quiet panic=-1 systemd.mask=serial-getty@ttyS0.service \
             systemd.mask=serial-getty@ttyS1.service{}",
            self.cgroups.words()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_are_unique_and_a_wrong_one_is_answered_with_all() {
        let mut names = ALL.map(|node| node.name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(find("sid").is_ok());
        assert!(find("potato").unwrap_err().to_string().contains("bookworm-hybrid"));
    }

    #[test]
    fn disks_of_one_name_are_one_disk() {
        for one in &ALL {
            for other in &ALL {
                assert!(one.disk.name != other.disk.name || one.disk == other.disk, "{}", one.name);
            }
        }
    }
}
