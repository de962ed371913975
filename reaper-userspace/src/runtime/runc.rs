//! The runtime's own state: `ROOT/NS/ID/state.json` of runc, `ROOT/NS/ID/status` of crun.
//!
//! Under containerd both keep it below the same root (`/run/containerd/runc` unless the options say otherwise),
//! one directory a namespace, as the shim passes `--root ROOT/NS`
//! (`cmd/containerd-shim-runc-v2/process/init.go:NewRunc`).
//!
//! # Invariants
//! - The recorded init is an incarnation, never a number alone; whether it lives is asked of the caller's reader.
//! - A state directory without the file is `NotFound`: a create is under way or died, `runc delete` knows nothing.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::about;
use super::directory::{Directory, lookup};
use crate::fact::RuncState;
use crate::ident::{ContainerKey, Lookup, Namespace, ProcessKey, StartTicks, Tgid};

/// runc's state embeds the container's configuration, which is about as large as its spec.
const LIMIT: u64 = 16 << 20;

/// Says whether exactly this incarnation is alive and no zombie.
pub type Alive<'a> = &'a dyn Fn(ProcessKey) -> Lookup<bool>;

#[derive(Debug, thiserror::Error)]
enum StateError {
    #[error("not readable as state of a runtime")]
    Json(#[source] serde_json::Error),
    #[error("{0} is no process number")]
    Pid(i64),
}

/// The fields of runc's `state.json` (`libcontainer/container.go:BaseState`) and of crun's `status`
/// (`src/libcrun/status.c`) that name init. Start times are clock ticks since boot in both.
#[derive(Deserialize)]
struct Recorded {
    #[serde(rename = "init_process_pid", alias = "pid")]
    pid: i64,
    #[serde(rename = "init_process_start", alias = "process-start-time")]
    start: u64,
}

/// State of one container below the first of the roots that has it; a root that cannot be read outweighs
/// those that do not have it. A root that does not exist does not have it: defaults name several.
pub fn state(roots: &[PathBuf], key: &ContainerKey, alive: Alive<'_>) -> Lookup<RuncState> {
    if roots.is_empty() {
        return Lookup::Unavailable("no state directory of a runtime is configured".to_owned());
    }
    let mut answer = Lookup::NotFound;
    for root in roots {
        match below(root, key, alive) {
            Lookup::Found(state) => return Lookup::Found(state),
            Lookup::NotFound => {}
            Lookup::Unavailable(reason) => answer = Lookup::Unavailable(reason),
        }
    }
    answer
}

/// Whether one of the roots has held containers of this namespace: a runtime makes the directory for the first one.
pub fn serves(roots: &[PathBuf], namespace: &Namespace) -> bool {
    roots.iter().any(|root| Directory::open(root).and_then(|root| root.child(namespace.as_str())).is_ok())
}

fn below(root: &Path, key: &ContainerKey, alive: Alive<'_>) -> Lookup<RuncState> {
    let directory = Directory::open(root)
        .and_then(|root| root.child(key.namespace.as_str()))
        .and_then(|namespace| namespace.child(key.id.as_str()));
    lookup(directory).and_then(|directory| match read(&directory, "state.json", alive) {
        Lookup::NotFound => read(&directory, "status", alive),
        answer @ (Lookup::Found(_) | Lookup::Unavailable(_)) => answer,
    })
}

fn read(directory: &Directory, name: &str, alive: Alive<'_>) -> Lookup<RuncState> {
    let path = directory.path().join(name);
    lookup(directory.read(name, LIMIT)).and_then(|content| match recorded(&content) {
        Ok(init) => {
            let init_alive = init.map_or(Lookup::NotFound, alive);
            Lookup::Found(RuncState { path, init, init_alive })
        }
        Err(error) => Lookup::Unavailable(about(&path, &error)),
    })
}

/// `None` while a create is under way: runc 1.3.1 to 1.3.4 write -1 before they make the cgroup.
fn recorded(content: &[u8]) -> Result<Option<ProcessKey>, StateError> {
    let recorded: Recorded = serde_json::from_slice(content).map_err(StateError::Json)?;
    if matches!(recorded.pid, -1 | 0) {
        return Ok(None);
    }
    let tgid = Tgid::new(recorded.pid).ok_or(StateError::Pid(recorded.pid))?;
    Ok(Some(ProcessKey { tgid, start: StartTicks::from_ticks(recorded.start) }))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests make state files")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;
    use crate::ident::ContainerId;

    fn key() -> ContainerKey {
        ContainerKey {
            namespace: Namespace::try_from("ns").unwrap(),
            id: ContainerId::try_from("id").unwrap(),
        }
    }

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("ns/id")).unwrap();
        for (name, text) in files {
            fs::write(root.path().join("ns/id").join(name), text).unwrap();
        }
        root
    }

    fn ask(roots: &[&Path]) -> Lookup<RuncState> {
        let roots: Vec<PathBuf> = roots.iter().map(|root| root.to_path_buf()).collect();
        state(&roots, &key(), &|init| Lookup::Found(init.tgid.get() == 42 && init.start.get() == 7))
    }

    const RUNC: (&str, &str) =
        ("state.json", r#"{"id":"id","init_process_pid":42,"init_process_start":7,"config":{}}"#);

    #[test]
    fn init_is_an_incarnation_and_is_asked_for_as_one() {
        let same = ask(&[root(&[RUNC]).path()]);
        assert_eq!(same.found().map(|state| &state.init_alive), Some(&Lookup::Found(true)));
        let reused = r#"{"init_process_pid":42,"init_process_start":8}"#;
        let state = ask(&[root(&[("state.json", reused)]).path()]);
        assert_eq!(state.found().map(|state| &state.init_alive), Some(&Lookup::Found(false)));
    }

    #[test]
    fn the_status_of_crun_is_understood() {
        let status = r#"{"pid":42,"process-start-time":7,"cgroup-path":"/ns/id","scope":null}"#;
        let state = ask(&[root(&[("status", status)]).path()]);
        assert_eq!(state.found().map(|state| &state.init_alive), Some(&Lookup::Found(true)));
    }

    #[test]
    fn a_create_under_way_has_no_init() {
        for pid in ["-1", "0"] {
            let text = format!(r#"{{"init_process_pid":{pid},"init_process_start":0}}"#);
            let state = ask(&[root(&[("state.json", &text)]).path()]);
            let state = state.found().unwrap();
            assert_eq!((state.init, &state.init_alive), (None, &Lookup::NotFound));
        }
    }

    #[test]
    fn a_state_directory_without_the_file_is_not_found() {
        for files in [&[][..], &[("exec.fifo", "")]] {
            assert_eq!(ask(&[root(files).path()]), Lookup::NotFound);
        }
        assert_eq!(ask(&[Path::new("/nonexistent")]), Lookup::NotFound);
        let served = |root: &Path| serves(&[root.to_path_buf()], &key().namespace);
        assert!(served(root(&[]).path()) && !served(Path::new("/nonexistent")));
    }

    #[test]
    fn what_cannot_be_read_is_unavailable() {
        for text in [
            "",
            "{}",
            r#"{"init_process_pid":42}"#,
            r#"{"init_process_pid":42,"init_process_start":-1}"#,
            r#"{"init_process_pid":-2,"init_process_start":1}"#,
            r#"{"init_process_pid":"42","init_process_start":1}"#,
            r#"{"init_process_pid":4294967338,"init_process_start":7}"#,
        ] {
            let answer = ask(&[root(&[("state.json", text)]).path()]);
            assert!(
                answer.unavailable().is_some_and(|why| why.contains("ns/id/state.json")),
                "{text}: {answer:?}"
            );
        }
        assert!(ask(&[]).unavailable().is_some());
    }

    #[test]
    fn found_in_any_root_wins_and_a_failure_outweighs_absence() {
        let (good, none, bad) = (root(&[RUNC]), root(&[]), root(&[]));
        symlink("/proc/self/status", bad.path().join("ns/id/state.json")).unwrap();
        let (good, none, bad) = (good.path(), none.path(), bad.path());
        assert!(ask(&[bad, none, good]).found().is_some());
        assert!(ask(&[none, bad]).unavailable().is_some());
        assert!(ask(&[bad, none]).unavailable().is_some());
        assert_eq!(ask(&[none, none]), Lookup::NotFound);
    }

    proptest! {
        #[test]
        fn no_content_makes_it_panic(text in "\\PC{0,60}") {
            prop_assert!(recorded(text.as_bytes()).is_err());
        }
    }
}
