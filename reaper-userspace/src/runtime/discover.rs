//! Which containerds there are: the addresses to ask before calling a container unknown.
//!
//! Addresses only, no judgement: a listening socket named like containerd's may belong to something else, and
//! asking it is how one finds out.
//!
//! # Invariants
//! - A socket that has several names (`/var/run` is a link to `/run`) is given once, by the first name.
//! - Configured addresses come first and are given even if nothing is there.
//! - If the table of sockets cannot be read the answer is `Unavailable`: a containerd may be hidden in it.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::stat;

use super::sockets::{self, BoundSocket};
use crate::fact::Ownership;
use crate::ident::Lookup;

/// Where containerd listens unless configured otherwise.
pub const DEFAULT_ADDRESS: &str = "/run/containerd/containerd.sock";

/// A containerd to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// gRPC address, without `unix://`.
    pub address: String,
    /// Configured, or found on the node.
    pub ownership: Ownership,
}

/// What makes two names the same socket.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Inode {
        device: u64,
        inode: u64,
    },
    /// Nothing there, or not to be seen from here.
    Name(PathBuf),
}

/// The configured addresses, each socket once.
pub fn ours(configured: &[String]) -> Vec<Address> {
    distinct(configured.iter().map(|address| (address.clone(), Ownership::Ours)))
}

/// The configured addresses, those that live shims were started with, and every listening socket of `table`
/// (`/proc/1/net/unix`: the host's network namespace) whose file is named `containerd*.sock`.
pub fn addresses(configured: &[String], of_shims: &[String], table: &Path) -> Lookup<Vec<Address>> {
    let bound = match sockets::bound(table) {
        Lookup::Found(bound) => bound,
        Lookup::NotFound => return Lookup::NotFound,
        Lookup::Unavailable(reason) => return Lookup::Unavailable(reason),
    };
    let ours = configured.iter().map(|address| (address.clone(), Ownership::Ours));
    let found = of_shims.iter().cloned().chain(listening(&bound));
    Lookup::Found(distinct(ours.chain(found.map(|address| (address, Ownership::Foreign)))))
}

fn distinct(named: impl Iterator<Item = (String, Ownership)>) -> Vec<Address> {
    let mut known = BTreeSet::new();
    let mut addresses = Vec::new();
    for (address, ownership) in named {
        let address = address.strip_prefix("unix://").unwrap_or(&address).to_owned();
        let identity = Identity::of(Path::new(&address));
        if !address.is_empty() && known.insert(identity) {
            addresses.push(Address { address, ownership });
        }
    }
    addresses
}

/// Whether two addresses lead to the same socket; by their names where nothing is there.
pub fn same_socket(one: &str, other: &str) -> bool {
    let identity =
        |address: &str| Identity::of(Path::new(address.strip_prefix("unix://").unwrap_or(address)));
    identity(one) == identity(other)
}

// === impl Identity ===

impl Identity {
    fn of(path: &Path) -> Self {
        match stat(path) {
            Ok(stat) => Self::Inode { device: stat.st_dev, inode: stat.st_ino },
            Err(_) => Self::Name(path.components().collect()),
        }
    }
}

/// Paths of listening sockets that are named like containerd's, in order of the table.
fn listening(bound: &[BoundSocket]) -> impl Iterator<Item = String> + '_ {
    bound.iter().filter(|socket| socket.listening).filter_map(|socket| {
        let name = socket.path.file_name()?.as_bytes();
        let named = name.starts_with(b"containerd") && name.ends_with(b".sock");
        let exact = !socket.path.as_os_str().as_bytes().iter().any(u8::is_ascii_control);
        (named && exact).then(|| socket.path.to_str().map(ToOwned::to_owned)).flatten()
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests make tables")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    const HEAD: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n";

    fn row(flags: &str, path: &str) -> String {
        format!("0000000000000000: 00000002 00000000 {flags} 0001 01 12345 {path}\n")
    }

    fn found(table: &str) -> Vec<String> {
        let bound: Vec<BoundSocket> = sockets::parse(table.as_bytes()).collect();
        listening(&bound).collect()
    }

    #[test]
    fn a_listening_socket_named_like_containerds_is_found() {
        let table = [
            HEAD,
            &row("00010000", "/run/containerd/containerd.sock"),
            &row("00010000", "/run/k3s/containerd/containerd.sock"),
            &row("00010000", "/tmp/with space/containerd-2.sock"),
        ]
        .concat();
        let want = [
            "/run/containerd/containerd.sock",
            "/run/k3s/containerd/containerd.sock",
            "/tmp/with space/containerd-2.sock",
        ];
        assert_eq!(found(&table), want);
    }

    #[test]
    fn connections_other_names_and_broken_rows_are_not() {
        let table = [
            HEAD,
            &row("00000000", "/run/containerd/containerd.sock"),
            &row("00010000", "/run/containerd/containerd.sock.ttrpc"),
            &row("00010000", "/run/docker.sock"),
            &row("00010000", "@containerd.sock"),
            &row("00010000", "containerd.sock"),
            &row("00010000", "/tmp/\u{1b}[2J/containerd.sock"),
            "0000000000000000: 00000002 00000000 00010000 0001 01 12345\n",
            "junk\n\n",
        ]
        .concat();
        assert_eq!(found(&table), Vec::<String>::new());
    }

    #[test]
    fn a_socket_of_several_names_is_given_once_and_configured_ones_come_first() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let _listener = UnixListener::bind(at("containerd.sock")).unwrap();
        symlink(dir.path(), at("link")).unwrap();
        let text =
            [HEAD, &row("00010000", &at("containerd.sock")), &row("00010000", &at("containerd-2.sock"))]
                .concat();
        std::fs::write(at("table"), text).unwrap();
        let ours = [at("link/containerd.sock"), at("missing.sock")];
        let shims = [format!("unix://{}", at("containerd.sock")), at("missing.sock"), String::new()];
        let answer = addresses(&ours, &shims, Path::new(&at("table")));
        let of = |address: String, ownership| Address { address, ownership };
        let want = vec![
            of(at("link/containerd.sock"), Ownership::Ours),
            of(at("missing.sock"), Ownership::Ours),
            of(at("containerd-2.sock"), Ownership::Foreign),
        ];
        assert_eq!(answer, Lookup::Found(want));
    }

    #[test]
    fn a_table_that_cannot_be_read_is_unavailable() {
        let answer = addresses(&[DEFAULT_ADDRESS.to_owned()], &[], Path::new("/nonexistent/unix"));
        assert!(answer.unavailable().is_some_and(|why| why.contains("/nonexistent/unix")), "{answer:?}");
    }

    #[test]
    fn the_kernels_own_table_shows_a_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("containerd-reaper-test.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let answer = addresses(&[], &[], Path::new("/proc/self/net/unix"));
        let path = path.to_str().unwrap();
        assert!(
            answer.found().is_some_and(|found| found.iter().any(|one| one.address == path)),
            "{answer:?}"
        );
    }
}
