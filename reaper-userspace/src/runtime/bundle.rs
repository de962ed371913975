//! Bundles: the directories `STATE/io.containerd.runtime.v2.task/NS/ID` in which containerd keeps what a shim
//! was started with, and in which the shim and runc leave traces of how far they came.
//!
//! Reads only. Hidden names are leftovers of containerd's own deletion and are not bundles.
//!
//! # Invariants
//! - A bundle that is being deleted while it is read is absent or unavailable, never a bundle without files.
//! - `NotFound` needs the state directory itself to exist: a wrong or unmounted path is no absence.

use std::convert::identity;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cgroups_path::Driver;
use super::directory::{Directory, DirectoryError, lookup};
use super::spec::Spec;
use super::{about, reason, shown};
use crate::fact::{BundleFact, CreateProgress, FileId};
use crate::ident::{CgroupPath, ContainerId, ContainerKey, Lookup, Namespace, Tgid};

/// The plugin's directory in containerd's state directory, the same from 1.4 to 2.4.
const TASKS: &str = "io.containerd.runtime.v2.task";
/// Specs with thousands of mounts and seccomp rules stay far below.
const CONFIG_LIMIT: u64 = 16 << 20;
/// For the small files.
const SMALL_LIMIT: u64 = 64 << 10;

/// All bundles below one state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundles {
    /// Those that could be opened, in order of their keys.
    pub bundles: Vec<BundleFact>,
    /// What could not be read as a bundle, each naming the path and why: never to be taken as absence.
    pub problems: Vec<String>,
}

/// `options.json`: the runtime options that were effective for this container.
///
/// Written by the shim first thing in a create (`cmd/containerd-shim-runc-v2/runc/container.go:WriteOptions`);
/// zero values are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RuntimeOptions {
    systemd_cgroup: bool,
    binary_name: String,
    root: PathBuf,
}

/// Where a bundle's shim listens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ShimAddress {
    /// `unix:///run/containerd/s/HEX`, or whatever else the shim chose.
    pub address: String,
}

// === impl RuntimeOptions ===

impl RuntimeOptions {
    /// Who makes the container's cgroup.
    pub fn driver(&self) -> Driver {
        Driver::of(self.systemd_cgroup, &self.binary_name)
    }

    /// The runtime's binary, if it is not the shim's default; a bare name is looked up in the shim's `PATH`.
    pub fn binary(&self) -> Option<&str> {
        (!self.binary_name.is_empty()).then_some(self.binary_name.as_str())
    }

    /// The runtime's state directory without the namespace, if it is not the shim's default.
    pub fn root(&self) -> Option<&Path> {
        (!self.root.as_os_str().is_empty()).then_some(self.root.as_path())
    }
}

/// Every bundle of every namespace of the containerd with this state directory.
pub fn list(state: &Path) -> Lookup<Bundles> {
    open_tasks(state).and_then(|tasks| {
        lookup(tasks.names()).map(|names| {
            let mut found = Bundles::default();
            for name in &names {
                list_namespace(&tasks, name, &mut found);
            }
            found.bundles.sort_by(|a, b| a.key.cmp(&b.key));
            found
        })
    })
}

/// The bundle of one container.
pub fn one(state: &Path, key: &ContainerKey) -> Lookup<BundleFact> {
    in_bundle(state, key, |bundle| fact(bundle, key))
}

/// Which directory the bundle of one container is.
pub fn identity_of(state: &Path, key: &ContainerKey) -> Lookup<FileId> {
    in_bundle(state, key, Directory::id).and_then(lookup)
}

/// The runtime options of one container; `NotFound` if it has no bundle or its bundle has none.
pub fn options(state: &Path, key: &ContainerKey) -> Lookup<RuntimeOptions> {
    in_bundle(state, key, read_options).and_then(identity)
}

/// Where the shim of one container listens, as its bundle says: `bootstrap.json` of containerd 2, or the
/// `address` of older shims and of Kata. `NotFound` if it says nothing.
pub fn shim_address(state: &Path, key: &ContainerKey) -> Lookup<ShimAddress> {
    let read = |bundle: &Directory| match json(bundle, "bootstrap.json") {
        Lookup::NotFound => parse(bundle, "address", SMALL_LIMIT, |content| {
            String::from_utf8(content).map(|address| ShimAddress { address: address.trim().to_owned() })
        }),
        answer @ (Lookup::Found(_) | Lookup::Unavailable(_)) => answer,
    };
    in_bundle(state, key, read).and_then(identity)
}

/// containerd makes the plugin's directory when it starts (`runtime/v2/manager.go:NewTaskManager`).
fn open_tasks(state: &Path) -> Lookup<Directory> {
    match Directory::open(state) {
        Ok(directory) => lookup(directory.child(TASKS)),
        Err(error) => Lookup::Unavailable(reason(&error)),
    }
}

fn list_namespace(tasks: &Directory, name: &OsStr, found: &mut Bundles) {
    let Some(name) = visible(name) else { return };
    let namespace = match Namespace::try_from(name.as_str()) {
        Ok(namespace) => namespace,
        Err(error) => return found.problems.push(about(&tasks.path().join(name), &error)),
    };
    let listed = tasks.child(namespace.as_str()).and_then(|directory| Ok((directory.names()?, directory)));
    match lookup(listed) {
        Lookup::Found((names, directory)) => {
            for name in &names {
                list_bundle(&directory, &namespace, name, found);
            }
        }
        Lookup::NotFound => {}
        Lookup::Unavailable(why) => found.problems.push(why),
    }
}

fn list_bundle(directory: &Directory, namespace: &Namespace, name: &OsStr, found: &mut Bundles) {
    let Some(name) = visible(name) else { return };
    let id = match ContainerId::try_from(name.as_str()) {
        Ok(id) => id,
        Err(error) => return found.problems.push(about(&directory.path().join(name), &error)),
    };
    let key = ContainerKey { namespace: namespace.clone(), id };
    match lookup(steady(directory, &key.id, |bundle| fact(bundle, &key))) {
        Lookup::Found(bundle) => found.bundles.push(bundle),
        Lookup::NotFound => {}
        Lookup::Unavailable(why) => found.problems.push(why),
    }
}

/// The name as text, lossily (what is no UTF-8 is refused as an id); `None` for hidden names.
fn visible(name: &OsStr) -> Option<String> {
    let name = name.to_string_lossy();
    (!name.starts_with('.')).then(|| name.into_owned())
}

/// Reads something of one bundle.
fn in_bundle<T>(state: &Path, key: &ContainerKey, read: impl FnOnce(&Directory) -> T) -> Lookup<T> {
    let tasks = match open_tasks(state) {
        // Whoever asks about a container knows that there is one: this is not where its containerd keeps bundles.
        Lookup::NotFound => {
            let state = shown(state);
            Lookup::Unavailable(format!("{state} has no {TASKS}: is --containerd-state right?"))
        }
        answer @ (Lookup::Found(_) | Lookup::Unavailable(_)) => answer,
    };
    tasks.and_then(|tasks| {
        let namespace = tasks.child(key.namespace.as_str());
        lookup(namespace.and_then(|namespace| steady(&namespace, &key.id, read)))
    })
}

/// Reads something of a bundle and checks afterwards that it is still the bundle of that name.
fn steady<T>(
    namespace: &Directory,
    id: &ContainerId,
    read: impl FnOnce(&Directory) -> T,
) -> Result<T, DirectoryError> {
    let bundle = namespace.child(id.as_str())?;
    let value = read(&bundle);
    namespace.still_holds(id.as_str(), &bundle)?;
    Ok(value)
}

fn fact(bundle: &Directory, key: &ContainerKey) -> BundleFact {
    let init = lookup(bundle.read("init.pid", SMALL_LIMIT));
    let written = lookup(bundle.read("options.json", SMALL_LIMIT));
    let spec = parse(bundle, "config.json", CONFIG_LIMIT, |content| Spec::parse(&content));
    BundleFact {
        key: key.clone(),
        path: bundle.path().to_owned(),
        group: spec.as_ref().map(|spec| spec.group(&key.id)),
        protected: spec.as_ref().found().is_some_and(|spec| spec.is_protected()),
        cgroup: cgroup(bundle, spec),
        progress: progress(&written, &init),
        init_pid: init.and_then(|content| init_pid(bundle, &content)),
    }
}

/// `NotFound` only if there is no `config.json`: containerd died before it wrote one, so nothing was started.
fn cgroup(bundle: &Directory, spec: Lookup<Spec>) -> Lookup<CgroupPath> {
    let path = bundle.path();
    spec.and_then(|spec| match read_options(bundle) {
        Lookup::Found(options) => match spec.cgroup(options.driver()) {
            Ok(cgroup) => Lookup::Found(cgroup),
            Err(error) => Lookup::Unavailable(about(path, &error)),
        },
        Lookup::NotFound => {
            Lookup::Unavailable(format!("{} has no options.json, which names the cgroup driver", shown(path)))
        }
        Lookup::Unavailable(reason) => Lookup::Unavailable(reason),
    })
}

/// Presence decides, not content: both files may be cut short by a crash, and were written all the same.
fn progress(options: &Lookup<Vec<u8>>, init: &Lookup<Vec<u8>>) -> Lookup<CreateProgress> {
    match (options, init) {
        (Lookup::Unavailable(reason), _) | (_, Lookup::Unavailable(reason)) => {
            Lookup::Unavailable(reason.clone())
        }
        (_, Lookup::Found(_)) => Lookup::Found(CreateProgress::Finished),
        (Lookup::Found(_), Lookup::NotFound) => Lookup::Found(CreateProgress::Started),
        (Lookup::NotFound, Lookup::NotFound) => Lookup::Found(CreateProgress::NeverRan),
    }
}

fn init_pid(bundle: &Directory, content: &[u8]) -> Lookup<Tgid> {
    let text = String::from_utf8_lossy(content);
    match text.trim().parse().ok().and_then(Tgid::new) {
        Some(tgid) => Lookup::Found(tgid),
        None => Lookup::Unavailable(format!("{}/init.pid holds no process number", shown(bundle.path()))),
    }
}

fn read_options(bundle: &Directory) -> Lookup<RuntimeOptions> {
    json(bundle, "options.json")
}

fn json<T: for<'de> Deserialize<'de>>(bundle: &Directory, name: &str) -> Lookup<T> {
    parse(bundle, name, SMALL_LIMIT, |content| serde_json::from_slice(&content))
}

fn parse<T, E: std::error::Error>(
    bundle: &Directory,
    name: &str,
    limit: u64,
    parse: impl FnOnce(Vec<u8>) -> Result<T, E>,
) -> Lookup<T> {
    lookup(bundle.read(name, limit)).and_then(|content| match parse(content) {
        Ok(value) => Lookup::Found(value),
        Err(error) => Lookup::Unavailable(about(&bundle.path().join(name), &error)),
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests make bundles")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    struct State(tempfile::TempDir);

    impl State {
        fn new() -> Self {
            let state = Self(tempfile::tempdir().unwrap());
            fs::create_dir(state.0.path().join(TASKS)).unwrap();
            state
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(TASKS).join(path)
        }

        fn bundle(self, files: &[(&str, &str)]) -> Self {
            fs::create_dir_all(self.at("ns/id/rootfs")).unwrap();
            for (name, content) in files {
                fs::write(self.at("ns/id").join(name), content).unwrap();
            }
            self
        }

        fn one(&self) -> Lookup<BundleFact> {
            one(self.0.path(), &key("id"))
        }

        fn fact(&self) -> BundleFact {
            self.one().found().unwrap().clone()
        }
    }

    fn key(id: &str) -> ContainerKey {
        ContainerKey { namespace: Namespace::try_from("ns").unwrap(), id: ContainerId::try_from(id).unwrap() }
    }

    const CONFIG: (&str, &str) = (
        "config.json",
        r#"{"linux":{"cgroupsPath":"/ns/id"},"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}"#,
    );

    #[test]
    fn a_complete_bundle_tells_its_cgroup_group_progress_and_init() {
        let bundle = State::new().bundle(&[CONFIG, ("options.json", "{}"), ("init.pid", "42")]).fact();
        assert_eq!(bundle.cgroup.map(|cgroup| cgroup.to_string()), Lookup::Found("/ns/id".to_owned()));
        assert_eq!(bundle.group.map(String::from), Lookup::Found("pod".to_owned()));
        assert_eq!(bundle.progress, Lookup::Found(CreateProgress::Finished));
        assert_eq!(bundle.init_pid.map(Tgid::get), Lookup::Found(42));
        assert!(bundle.path.ends_with("io.containerd.runtime.v2.task/ns/id"));
    }

    #[test]
    fn the_driver_comes_from_the_options_and_not_from_the_shape() {
        let config = ("config.json", r#"{"linux":{"cgroupsPath":"a.slice:p:id"}}"#);
        let systemd = State::new().bundle(&[config, ("options.json", r#"{"systemd_cgroup":true}"#)]).fact();
        assert_eq!(
            systemd.cgroup.map(|path| path.to_string()),
            Lookup::Found("/a.slice/p-id.scope".to_owned())
        );
        let cgroupfs = State::new().bundle(&[config, ("options.json", "{}")]).fact();
        assert!(cgroupfs.cgroup.unavailable().is_some());
        let unknown = State::new().bundle(&[CONFIG]).fact();
        assert!(unknown.cgroup.unavailable().is_some_and(|why| why.contains("options.json")));
    }

    #[test]
    fn progress_is_read_from_the_files_that_are_there() {
        let progress = |files: &[(&str, &str)]| State::new().bundle(files).fact().progress;
        assert_eq!(progress(&[]), Lookup::Found(CreateProgress::NeverRan));
        assert_eq!(progress(&[CONFIG]), Lookup::Found(CreateProgress::NeverRan));
        assert_eq!(progress(&[("options.json", "{}")]), Lookup::Found(CreateProgress::Started));
        assert_eq!(progress(&[("options.json", "{\"sys")]), Lookup::Found(CreateProgress::Started));
        assert_eq!(
            progress(&[("options.json", "{}"), ("init.pid", "x")]),
            Lookup::Found(CreateProgress::Finished)
        );
        let state = State::new().bundle(&[]);
        symlink("/etc/hostname", state.at("ns/id/options.json")).unwrap();
        assert!(state.fact().progress.unavailable().is_some());
        assert!(state.fact().cgroup.is_not_found());
    }

    #[test]
    fn a_number_that_is_no_process_is_unavailable_and_a_missing_file_is_not_found() {
        for bad in ["0", "-1", "", "x", "99999999999999999999", "4 2", "2147483648"] {
            let init = State::new().bundle(&[("init.pid", bad)]).fact().init_pid;
            assert!(init.unavailable().is_some(), "{bad:?}: {init:?}");
        }
        assert_eq!(State::new().bundle(&[]).fact().init_pid, Lookup::NotFound);
    }

    #[test]
    fn a_config_that_is_cut_short_too_large_or_a_link_is_unavailable() {
        let cut = State::new().bundle(&[("config.json", r#"{"linux":{"cgroups"#), ("options.json", "{}")]);
        let large = State::new().bundle(&[("options.json", "{}")]);
        fs::File::create(large.at("ns/id/config.json")).unwrap().set_len(CONFIG_LIMIT + 1).unwrap();
        let link = State::new().bundle(&[("options.json", "{}"), ("real", CONFIG.1)]);
        symlink("real", link.at("ns/id/config.json")).unwrap();
        for state in [cut, large, link] {
            let bundle = state.fact();
            let why = bundle.cgroup.unavailable().unwrap();
            assert!(why.contains("ns/id/config.json"), "{why}");
            assert!(bundle.group.unavailable().is_some());
        }
    }

    #[test]
    fn absence_needs_a_state_directory_that_exists() {
        assert_eq!(State::new().one(), Lookup::NotFound);
        let empty = tempfile::tempdir().unwrap();
        let wrong = one(empty.path(), &key("id"));
        assert!(wrong.unavailable().is_some_and(|why| why.contains("--containerd-state")), "{wrong:?}");
        assert!(options(empty.path(), &key("id")).unavailable().is_some());
        assert_eq!(list(empty.path()), Lookup::NotFound, "nothing ran yet");
        let missing = empty.path().join("none");
        assert!(one(&missing, &key("id")).unavailable().is_some_and(|why| why.contains("none")));
        assert!(list(&missing).unavailable().is_some());
    }

    #[test]
    fn a_bundle_replaced_by_a_link_is_unavailable() {
        let state = State::new().bundle(&[CONFIG]);
        fs::rename(state.at("ns/id"), state.at("ns/.id")).unwrap();
        symlink(".id", state.at("ns/id")).unwrap();
        assert!(state.one().unavailable().is_some());
        let listed = list(state.0.path());
        assert_eq!(listed.found().map(|found| (found.bundles.len(), found.problems.len())), Some((0, 1)));
    }

    #[test]
    fn listing_skips_hidden_names_and_reports_refused_ones() {
        let state = State::new().bundle(&[CONFIG]);
        for name in ["ns/.gone", "ns/b d", "ns/a", "o\u{1b}s/x", ".ns/x"] {
            fs::create_dir_all(state.at(name)).unwrap();
        }
        fs::write(state.at("ns/file"), "").unwrap();
        let listed = list(state.0.path());
        let found = listed.found().unwrap();
        let ids: Vec<&str> = found.bundles.iter().map(|bundle| bundle.key.id.as_str()).collect();
        assert_eq!(ids, ["a", "id"]);
        assert_eq!(found.problems.len(), 3, "{:?}", found.problems);
    }

    #[test]
    fn the_shims_address_comes_from_either_file() {
        let address = |files: &[(&str, &str)]| shim_address(State::new().bundle(files).0.path(), &key("id"));
        let of = |text: &str| Lookup::Found(ShimAddress { address: text.to_owned() });
        let bootstrap = ("bootstrap.json", r#"{"version":3,"address":"unix:///b","protocol":"ttrpc"}"#);
        assert_eq!(address(&[("address", "unix:///a")]), of("unix:///a"));
        assert_eq!(address(&[("address", "unix:///a"), bootstrap]), of("unix:///b"));
        assert_eq!(address(&[]), Lookup::NotFound);
        assert!(address(&[("address", "unix:///a"), ("bootstrap.json", "{")]).unavailable().is_some());
    }

    #[test]
    fn options_tell_the_runtimes_root() {
        let state =
            State::new().bundle(&[("options.json", r#"{"root":"/run/docker/runtime-runc","new":1}"#)]);
        let options = options(state.0.path(), &key("id"));
        assert_eq!(
            options.found().and_then(RuntimeOptions::root),
            Some(Path::new("/run/docker/runtime-runc"))
        );
        assert_eq!(options.map(|options| options.driver()), Lookup::Found(Driver::Cgroupfs));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_content_makes_it_panic_or_name_the_root(config in "\\PC{0,60}", options in "\\PC{0,20}", init in "\\PC{0,8}") {
            let files = [("config.json", &*config), ("options.json", &*options), ("init.pid", &*init)];
            let bundle = State::new().bundle(&files).fact();
            prop_assert!(bundle.cgroup.found().is_none_or(|cgroup| !cgroup.is_root()));
            prop_assert_eq!(bundle.progress, Lookup::Found(CreateProgress::Finished));
        }
    }
}
