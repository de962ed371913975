//! Proof that a containerd is not running, for the one command that is meant for the time before it starts.
//!
//! containerd serves its socket only after it has loaded every bundle, so a socket that refuses connections proves
//! nothing by itself: it may be loading, which is exactly when nobody else may touch what it loads.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::scene::SOCKET_TABLE;
use crate::fact::ProcessFact;
use crate::ident::Lookup;
use crate::kernel::chain;
use crate::procfs;
use crate::runtime::sockets::{self, BoundSocket};

const PROGRAM: &str = "containerd";

/// Why a containerd is not proven to be stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStopped {
    /// It runs, or its socket is held.
    #[error("{0}")]
    Running(String),
    /// It cannot be told, now: another containerd is starting, or a question got no answer.
    #[error("{0}")]
    Unclear(String),
}

/// `Ok` if nobody answers at the address, no socket is bound to it, and no containerd is without a socket of its own.
pub(super) fn proven(address: &str) -> Result<(), NotStopped> {
    let processes = procfs::all().map_err(|error| NotStopped::Unclear(chain(&error)))?;
    unserved(address, &processes)
}

fn unserved(address: &str, processes: &[ProcessFact]) -> Result<(), NotStopped> {
    let path = Path::new(address.strip_prefix("unix://").unwrap_or(address));
    match UnixStream::connect(path) {
        Ok(_) => {
            let why = format!("somebody serves {address}: this is for the time before containerd starts");
            return Err(NotStopped::Running(why));
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
        Err(error) => return Err(NotStopped::Unclear(format!("connect to {address}: {error}"))),
    }
    let bound = match sockets::bound(Path::new(SOCKET_TABLE)) {
        Lookup::Found(bound) => bound,
        Lookup::NotFound => return Err(NotStopped::Unclear(format!("{SOCKET_TABLE} does not exist"))),
        Lookup::Unavailable(reason) => return Err(NotStopped::Unclear(reason)),
    };
    if bound.iter().any(|socket| socket.path == path) {
        return Err(NotStopped::Running(format!("a process still holds {address}")));
    }
    processes
        .iter()
        .filter(|process| is_containerd(process))
        .try_for_each(|process| serves_other(process, &bound))
}

/// By the file it executes or the name it was started with: whichever says so.
fn is_containerd(process: &ProcessFact) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|name| name == PROGRAM);
    // An upgrade replaces the file of a process that goes on.
    let exe = process.exe.as_ref().map(|exe| exe.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    exe.is_some_and(|exe| named(Path::new(&exe)))
        || process.argv.first().is_some_and(|word| named(Path::new(word)))
}

/// A containerd that listens somewhere has finished loading, and it is not there that ours listens.
fn serves_other(process: &ProcessFact, bound: &[BoundSocket]) -> Result<(), NotStopped> {
    let tgid = process.key.tgid;
    match procfs::sockets(process.key) {
        Lookup::Found(held) if bound.iter().any(|one| one.listening && held.contains(&one.inode)) => Ok(()),
        Lookup::Found(_) => Err(NotStopped::Unclear(format!(
            "a containerd (pid {tgid}) runs and serves nothing: it may be loading"
        ))),
        Lookup::NotFound => Ok(()),
        Lookup::Unavailable(reason) => Err(NotStopped::Unclear(reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::fact::sample;

    #[test]
    fn an_address_that_is_served_or_held_is_not_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("containerd.sock");
        let address = path.to_string_lossy().into_owned();
        assert_eq!(unserved(&address, &[]), Ok(()));
        let listener = UnixListener::bind(&path).unwrap();
        assert!(unserved(&address, &[]).unwrap_err().to_string().contains("somebody serves"));
        drop(listener);
        assert_eq!(unserved(&address, &[]), Ok(()), "a socket file that nobody serves");
        let bound = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Unix,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::empty(),
            None,
        )
        .unwrap();
        let other = dir.path().join("bound.sock");
        nix::sys::socket::bind(
            std::os::fd::AsRawFd::as_raw_fd(&bound),
            &nix::sys::socket::UnixAddr::new(&other).unwrap(),
        )
        .unwrap();
        assert!(unserved(&other.to_string_lossy(), &[]).unwrap_err().to_string().contains("still holds"));
    }

    #[test]
    fn a_containerd_is_known_by_its_file_or_its_first_word() {
        let process = |exe: &str, word: &str| ProcessFact {
            exe: Some(exe.into()),
            argv: vec![word.to_owned()],
            ..sample::init()
        };
        for (exe, word) in
            [("/usr/bin/containerd", "x"), ("/x/containerd (deleted)", "x"), ("/x", "containerd")]
        {
            assert!(is_containerd(&process(exe, word)), "{exe} {word}");
        }
        assert!(!is_containerd(&process("/usr/bin/containerd-shim-runc-v2", "containerd-shim-runc-v2")));
    }

    #[test]
    fn a_containerd_without_a_socket_may_be_loading() {
        let tgid = crate::ident::Tgid::new(i64::from(std::process::id())).unwrap();
        let start = *procfs::start_of(tgid).found().unwrap();
        let key = crate::ident::ProcessKey { tgid, start };
        let process = ProcessFact { key, ..sample::init() };
        assert!(serves_other(&process, &[]).unwrap_err().to_string().contains("loading"));
    }
}
