//! The containerds of this node, and whether what they keep on disk is where we look.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::check::Check;
use crate::fact::{Ownership, ProcessFact, RuntimeProcess, RuntimeRole};
use crate::ident::Lookup;
use crate::procfs;
use crate::runtime::bundle;
use crate::runtime::containerd::{Containerd, DEADLINE};
use crate::runtime::discover::{self, Address};
use crate::survey::Sources;

/// The host's table of Unix sockets.
const SOCKET_TABLE: &str = "/proc/1/net/unix";

/// A live shim: the containerd that it was started by.
type Shims = Vec<String>;

/// What one containerd said.
#[derive(Debug)]
struct Answer {
    address: Address,
    shims: usize,
    /// Process number and number of container records.
    served: Lookup<(u32, usize)>,
    /// Whether the server has a mount namespace of its own; `None` if that cannot be told.
    apart: Option<bool>,
}

pub(super) async fn all(sources: &Sources) -> Vec<Check> {
    // Without a list of processes the check of that name says so.
    let processes: Vec<ProcessFact> = procfs::all().unwrap_or_default();
    // Whom others name is not spoken to.
    let mut runtime = procfs::runtime_processes(&processes);
    runtime.retain(|claim| procfs::is_root(claim.process.key) == Lookup::Found(true));
    let shims = shims(&runtime);
    let mut checks = containerds(sources, &shims).await;
    checks.extend(sources.containerd_states.iter().map(|state| bundles(state, shims.len())));
    checks.extend(sources.runc_roots.iter().map(|root| runc_root(root, shims.len())));
    checks
}

fn shims(runtime: &[RuntimeProcess]) -> Shims {
    let address = |process: &RuntimeProcess| match &process.role {
        RuntimeRole::Shim { address, .. } => Some(address.clone()),
        RuntimeRole::Command { .. } => None,
    };
    runtime.iter().filter_map(address).collect()
}

async fn containerds(sources: &Sources, shims: &Shims) -> Vec<Check> {
    let found = discover::addresses(&sources.containerd_addresses, shims, Path::new(SOCKET_TABLE));
    let addresses = match found {
        Lookup::Found(addresses) => addresses,
        Lookup::NotFound => vec![],
        Lookup::Unavailable(reason) => {
            let remedy =
                "run it as root in the host's PID namespace: nothing is proven while sockets are hidden";
            return vec![Check::problem("containerd", reason, remedy)];
        }
    };
    let mut checks = vec![];
    for address in addresses {
        checks.push(judge(&ask(address, shims).await));
    }
    checks
}

/// Each call has a deadline of its own.
async fn ask(address: Address, shims: &Shims) -> Answer {
    let of_this = shims.iter().filter(|shim| discover::same_socket(shim, &address.address)).count();
    let client = Containerd::new(address.address.clone(), address.ownership, DEADLINE);
    let (served, apart) = match client.server(procfs::start_of).await {
        Lookup::Found(server) => {
            let pid = server.process.tgid.get();
            let records = client.records().await.map(|records| (pid, records.len()));
            (records, has_own_mounts(pid))
        }
        Lookup::NotFound => (Lookup::NotFound, None),
        Lookup::Unavailable(reason) => (Lookup::Unavailable(reason), None),
    };
    Answer { address, shims: of_this, served, apart }
}

fn has_own_mounts(pid: u32) -> Option<bool> {
    let ours = fs::read_link("/proc/self/ns/mnt").ok()?;
    Some(fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()? != ours)
}

fn judge(answer: &Answer) -> Check {
    const NAME: &str = "containerd";
    let Answer { address: Address { address, ownership }, shims, served, apart } = answer;
    let whose = match ownership {
        Ownership::Ours => "ours",
        Ownership::Foreign => "not configured, only asked",
    };
    match (served, ownership) {
        (Lookup::Found((pid, records)), _) => {
            let apart = if *apart == Some(true) { ", in a mount namespace of its own" } else { "" };
            Check::ok(
                NAME,
                format!("{address} ({whose}): process {pid}, containers {records}, shims {shims}{apart}"),
            )
        }
        (Lookup::NotFound | Lookup::Unavailable(_), Ownership::Ours) => {
            let remedy = if is_missing(address) {
                "start it, or name the socket that it has with --containerd-address: \
                 without its answers nothing can be confirmed"
            } else {
                "see whether it is up, and run this as root: without its answers nothing can be confirmed"
            };
            Check::warning(NAME, silent(address, whose, served), remedy)
        }
        (Lookup::NotFound | Lookup::Unavailable(_), Ownership::Foreign) => {
            let remedy = "start it or end its shims: until then what lies in their namespaces is left alone";
            Check::warning(NAME, format!("{}; shims {shims}", silent(address, whose, served)), remedy)
        }
    }
}

/// Not what cannot be seen: that may be there.
fn is_missing(address: &str) -> bool {
    matches!(Path::new(address).try_exists(), Ok(false))
}

fn silent(address: &str, whose: &str, served: &Lookup<(u32, usize)>) -> String {
    if is_missing(address) {
        return format!("{address} ({whose}) does not exist");
    }
    format!("{whose}: {}", served.unavailable().map_or("no answer", String::as_str))
}

fn bundles(state: &Path, shims: usize) -> Check {
    const NAME: &str = "bundles";
    let path = state.display();
    match bundle::list(state) {
        Lookup::Found(found) if found.problems.is_empty() => {
            Check::ok(NAME, format!("{path}: bundles {}", found.bundles.len()))
        }
        Lookup::Found(found) => {
            let remedy = "look at these directories: what cannot be read is left alone";
            Check::warning(NAME, format!("{path}: {}", found.problems.join("; ")), remedy)
        }
        Lookup::NotFound => {
            absent(NAME, &format!("{path} holds no directory of bundles"), shims, "--containerd-state")
        }
        Lookup::Unavailable(reason) => Check::warning(
            NAME,
            reason,
            "correct --containerd-state, or run this as root: what cannot be read is left alone",
        ),
    }
}

fn runc_root(root: &PathBuf, shims: usize) -> Check {
    const NAME: &str = "runtime_state";
    match fs::metadata(root) {
        Ok(metadata) if metadata.is_dir() => Check::ok(NAME, root.display().to_string()),
        Ok(_) => Check::warning(NAME, format!("{} is no directory", root.display()), "correct --runc-root"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            absent(NAME, &format!("{} does not exist", root.display()), shims, "--runc-root")
        }
        Err(error) => Check::warning(NAME, format!("{}: {error}", root.display()), "run this as root"),
    }
}

/// A node on which nothing ever ran has none of these directories; one with shims must.
fn absent(name: &'static str, seen: &str, shims: usize, flag: &str) -> Check {
    if shims == 0 {
        return Check::ok(name, format!("{seen}, as on a node where no container ran yet"));
    }
    Check::warning(name, format!("{seen}, and there are shims"), format!("name the right one with {flag}"))
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    fn answer(ownership: Ownership, served: Lookup<(u32, usize)>) -> Answer {
        let address = Address { address: "/nonexistent/containerd.sock".to_owned(), ownership };
        Answer { address, shims: 2, served, apart: Some(true) }
    }

    #[test]
    fn a_containerd_that_answers_is_shown_with_what_it_has() {
        let check = judge(&answer(Ownership::Ours, Lookup::Found((7, 3))));
        assert_eq!(check.state(), State::Ok);
        let want = "/nonexistent/containerd.sock (ours): process 7, containers 3, shims 2, in a mount namespace of its own";
        assert_eq!(check.seen(), want);
    }

    #[test]
    fn a_containerd_without_an_answer_is_a_warning_and_named() {
        for ownership in [Ownership::Ours, Ownership::Foreign] {
            let check = judge(&answer(ownership, Lookup::Unavailable("refused".to_owned())));
            assert_eq!(check.state(), State::Warning);
            assert!(check.seen().contains("/nonexistent/containerd.sock"), "{check:?}");
        }
    }

    #[test]
    fn a_missing_directory_matters_where_there_are_shims() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(bundles(state.path(), 0).state(), State::Ok);
        assert_eq!(bundles(state.path(), 1).state(), State::Warning);
        let missing = state.path().join("missing");
        assert_eq!(bundles(&missing, 0).state(), State::Warning);
        assert_eq!(runc_root(&missing, 0).state(), State::Ok);
        assert_eq!(runc_root(&missing, 1).state(), State::Warning);
        assert_eq!(runc_root(&PathBuf::from("/proc/version"), 0).state(), State::Warning);
    }
}
