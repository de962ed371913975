//! What the readers of container runtimes say of a real containerd, real shims and a real runc.

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "fixtures start, signal and remove what is theirs, and wait")]
mod runtime_support;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests measure how long a call takes")]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use containerd_client::services::v1::DeleteContainerRequest;
    use reaper_userspace::fact::{BundleFact, CreateProgress, Ownership, TaskStatus};
    use reaper_userspace::ident::{CgroupPath, ContainerKey, Lookup};
    use reaper_userspace::runtime::containerd::{Containerd as Client, DEADLINE};
    use reaper_userspace::runtime::{bundle, discover, runc, shim};
    use rustix::process::Signal;

    use crate::runtime_support::{Containerd, alive, signal_process, start_of, stop_process, wait};

    fn client(server: &Containerd) -> Client {
        Client::new(server.address(), Ownership::Ours, DEADLINE)
    }

    fn bundle_of(server: &Containerd, key: &ContainerKey) -> BundleFact {
        bundle::one(&server.state(), key).found().expect("a bundle").clone()
    }

    fn socket(server: &Containerd, key: &ContainerKey) -> PathBuf {
        shim::socket_path(&server.address(), &key.namespace, &key.id)
    }

    fn runc_roots() -> Vec<PathBuf> {
        vec![PathBuf::from("/run/docker-does-not-exist"), PathBuf::from("/run/containerd/runc")]
    }

    /// The path in the freezer's hierarchy, where runc's cgroupfs driver puts every container.
    fn freezer_path(pid: u32) -> CgroupPath {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let path = text.lines().find_map(|line| line.split_once(":freezer:")).expect("a freezer hierarchy").1;
        CgroupPath::try_from(path).unwrap()
    }

    fn assert_unavailable<T: std::fmt::Debug>(answer: &Lookup<T>, saying: &str) {
        let why = answer.unavailable().unwrap_or_else(|| panic!("{answer:?}"));
        assert!(why.contains(saying), "{why}");
    }

    #[tokio::test]
    async fn every_source_agrees_on_a_container_from_running_to_gone() {
        let server = Containerd::start();
        let (client, key) = (client(&server), server.key("life"));
        server.run("life");
        let status = async || (client.task(&key).await, shim::task(&socket(&server, &key), &key).await);
        assert_eq!(status().await, (Lookup::Found(TaskStatus::Running), Lookup::Found(TaskStatus::Running)));
        server.ctr(&["task", "pause", "life"]);
        assert_eq!(status().await, (Lookup::Found(TaskStatus::Paused), Lookup::Found(TaskStatus::Paused)));
        server.ctr(&["task", "resume", "life"]);
        server.ctr(&["task", "kill", "--signal", "KILL", "life"]);
        wait("the task stops", || server.ctr(&["task", "list"]).contains("STOPPED"));
        assert_eq!(status().await, (Lookup::Found(TaskStatus::Stopped), Lookup::Found(TaskStatus::Stopped)));
        server.ctr(&["task", "delete", "life"]);
        assert_eq!(client.task(&key).await, Lookup::NotFound);
        assert_eq!(client.record(&key).await, Lookup::Found(()));
        assert_unavailable(&shim::task(&socket(&server, &key), &key).await, "connect");
        server.ctr(&["container", "delete", "life"]);
        assert_eq!(client.task(&key).await, Lookup::NotFound);
        assert_eq!(client.record(&key).await, Lookup::NotFound);
        assert_eq!(bundle::one(&server.state(), &key), Lookup::NotFound);
        assert_eq!(runc::state(&runc_roots(), &key, &alive), Lookup::NotFound);
    }

    #[tokio::test]
    async fn an_unknown_namespace_has_neither_record_nor_task() {
        let server = Containerd::start();
        let key = server.key("never");
        assert_eq!(client(&server).record(&key).await, Lookup::NotFound);
        assert_eq!(client(&server).task(&key).await, Lookup::NotFound);
        assert_eq!(client(&server).records().await, Lookup::Found(vec![]));
    }

    #[tokio::test]
    async fn bundle_and_record_name_the_cgroup_that_init_is_in() {
        let server = Containerd::start();
        let key = server.key("where");
        server.run("where");
        let bundle = bundle_of(&server, &key);
        let init = bundle.init_pid.found().expect("an init").get();
        let cgroup = Lookup::Found(freezer_path(init));
        assert_eq!(bundle.cgroup, cgroup);
        assert_eq!(bundle.progress, Lookup::Found(CreateProgress::Finished));
        let records = client(&server).records().await;
        let records = records.found().expect("records");
        assert_eq!((records.len(), &records[0].key, &records[0].cgroup), (1, &key, &cgroup));
        assert_eq!(records[0].group, key.id);
        let listed = bundle::list(&server.state());
        assert_eq!(
            listed.found().map(|found| (&found.bundles, found.problems.len())),
            Some((&vec![bundle], 0))
        );
        let address = format!("unix://{}", socket(&server, &key).display());
        let told = bundle::shim_address(&server.state(), &key);
        assert_eq!(told.found().map(|told| &told.address), Some(&address));
        assert_eq!(client(&server).tasks().await, Lookup::Found(vec![(key, TaskStatus::Running)]));
    }

    #[tokio::test]
    async fn many_records_are_read_in_one_stream() {
        let server = Containerd::start();
        for number in 0..40 {
            server.ctr(&["container", "create", "--rootfs", "/", &format!("many-{number}"), "true"]);
        }
        let records = client(&server).records().await;
        assert_eq!(records.found().map(Vec::len), Some(40), "{records:?}");
    }

    #[tokio::test]
    async fn runc_state_names_an_init_that_is_alive_until_it_is_killed() {
        let server = Containerd::start();
        let key = server.key("state");
        server.run("state");
        let state = runc::state(&runc_roots(), &key, &alive);
        let state = state.found().expect("a state");
        let init = state.init.expect("an init");
        assert_eq!(Lookup::Found(init.tgid), bundle_of(&server, &key).init_pid);
        assert_eq!(state.init_alive, Lookup::Found(true));
        signal_process(init.tgid.get(), Signal::KILL);
        wait("init ends", || alive(init) == Lookup::Found(false));
        let state = runc::state(&runc_roots(), &key, &alive);
        assert_eq!(
            state.map(|state| (state.init, state.init_alive)),
            Lookup::Found((Some(init), Lookup::Found(false)))
        );
    }

    #[tokio::test]
    async fn a_create_in_flight_is_no_absence_to_containerd_or_shim() {
        let server = Containerd::start();
        let key = server.key("slow");
        let go = server.state().join("go");
        let wait_for_go = format!(
            "case \"$*\" in *' create '*) while [ ! -e {} ]; do sleep 0.05; done;; esac",
            go.display()
        );
        let slow = server.script("slow-runc", &format!("{wait_for_go}\nexec runc \"$@\""));
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| server.run_with("slow", &["--runc-binary", &slow]));
            wait("create begins", || {
                bundle::one(&server.state(), &key)
                    .found()
                    .is_some_and(|bundle| bundle.progress == Lookup::Found(CreateProgress::Started))
            });
            let asked =
                async { (client(&server).task(&key).await, shim::task(&socket(&server, &key), &key).await) };
            let (task, shim) = block_on(asked);
            fs::write(&go, "").unwrap();
            runs.join().unwrap();
            assert!(!task.is_not_found(), "{task:?}");
            assert!(!shim.is_not_found(), "{shim:?}");
        });
        assert_eq!(client(&server).task(&key).await, Lookup::Found(TaskStatus::Running));
    }

    /// In a thread of its own: the test's runtime must not be entered twice.
    fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
        std::thread::scope(|scope| {
            let runs = || {
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
            };
            scope.spawn(runs).join().unwrap()
        })
    }

    #[tokio::test]
    async fn a_running_task_without_a_record_is_still_found() {
        let server = Containerd::start();
        let key = server.key("unrecorded");
        server.run("unrecorded");
        let channel = containerd_client::connect(server.address()).await.unwrap();
        let mut request = tonic::Request::new(DeleteContainerRequest { id: key.id.to_string() });
        request.metadata_mut().insert("containerd-namespace", key.namespace.as_str().parse().unwrap());
        containerd_client::Client::from(channel).containers().delete(request).await.unwrap();
        assert_eq!(client(&server).record(&key).await, Lookup::NotFound);
        assert_eq!(client(&server).task(&key).await, Lookup::Found(TaskStatus::Running));
    }

    #[tokio::test]
    async fn the_server_behind_the_socket_is_containerd_itself() {
        let mut server = Containerd::start();
        let client = client(&server);
        let before = client.server(start_of).await;
        assert_eq!(before.found().map(|server| server.process.tgid.get()), Some(server.pid()));
        assert_eq!(client.server(start_of).await, before);
        server.end(Signal::KILL);
        assert_unavailable(&client.server(start_of).await, "refused");
    }

    #[tokio::test]
    async fn a_containerd_that_is_stopped_or_killed_is_unavailable() {
        for signal in [Signal::TERM, Signal::KILL] {
            let mut server = Containerd::start();
            let (client, key) = (client(&server), server.key("any"));
            assert_eq!(client.task(&key).await, Lookup::NotFound);
            server.end(signal);
            for _ in 0..2 {
                assert_unavailable(&client.task(&key).await, &server.address());
                assert_unavailable(&client.record(&key).await, &server.address());
                assert_unavailable(&client.records().await, &server.address());
                assert_unavailable(&client.tasks().await, &server.address());
            }
        }
    }

    #[tokio::test]
    async fn a_frozen_containerd_is_unavailable_within_the_deadline_and_heals() {
        let server = Containerd::start();
        let short = Duration::from_millis(300);
        let (client, key) = (Client::new(server.address(), Ownership::Ours, short), server.key("any"));
        assert_eq!(client.task(&key).await, Lookup::NotFound);
        stop_process(server.pid());
        for _ in 0..2 {
            let start = Instant::now();
            assert_unavailable(&client.task(&key).await, "no answer within 300ms");
            assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
        }
        server.signal(Signal::CONT);
        let patient = self::client(&server);
        assert_eq!(patient.task(&key).await, Lookup::NotFound);
        assert_eq!(client.task(&key).await, Lookup::NotFound);
    }

    #[tokio::test]
    async fn a_client_outlives_a_restart_of_containerd() {
        let mut server = Containerd::start();
        let (client, key) = (client(&server), server.key("again"));
        server.run("again");
        assert_eq!(client.task(&key).await, Lookup::Found(TaskStatus::Running));
        server.end(Signal::KILL);
        assert_unavailable(&client.task(&key).await, &server.address());
        server.serve();
        assert_eq!(client.task(&key).await, Lookup::Found(TaskStatus::Running));
    }

    #[tokio::test]
    async fn a_socket_that_is_no_containerd_is_unavailable() {
        let dir = tempfile::tempdir().unwrap();
        let key = ContainerKey { namespace: "ns".try_into().unwrap(), id: "id".try_into().unwrap() };
        let mute = UnixListener::bind(dir.path().join("mute")).unwrap();
        let garbled = UnixListener::bind(dir.path().join("garbled")).unwrap();
        std::thread::spawn(move || {
            for mut stream in garbled.incoming().flatten() {
                let _sent_or_closed =
                    stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
            }
        });
        fs::write(dir.path().join("file"), "").unwrap();
        for name in ["mute", "garbled", "file", "missing"] {
            let path = dir.path().join(name);
            let short = Duration::from_millis(300);
            let client = Client::new(path.to_str().unwrap().to_owned(), Ownership::Foreign, short);
            let start = Instant::now();
            assert_unavailable(&client.task(&key).await, name);
            assert_unavailable(&client.record(&key).await, name);
            assert_unavailable(&client.records().await, name);
            assert_unavailable(&client.tasks().await, name);
            assert!(start.elapsed() < Duration::from_secs(3), "{name}: {:?}", start.elapsed());
            assert_unavailable(&shim::task(&path, &key).await, name);
        }
        drop(mute);
    }

    #[tokio::test]
    async fn a_shim_knows_its_own_container_and_no_other() {
        let server = Containerd::start();
        let key = server.key("mine");
        server.run("mine");
        let socket = socket(&server, &key);
        assert_eq!(shim::task(&socket, &key).await, Lookup::Found(TaskStatus::Running));
        assert_eq!(shim::task(&socket, &server.key("other")).await, Lookup::NotFound);
    }

    #[tokio::test]
    async fn a_stopped_shim_is_unavailable_within_its_deadline_and_unknown_to_containerd() {
        let server = Containerd::start();
        let key = server.key("stuck");
        server.run("stuck");
        let pid = server.shim("stuck");
        stop_process(pid);
        let start = Instant::now();
        let answer = shim::task(&socket(&server, &key), &key).await;
        let took = start.elapsed();
        let task = client(&server).task(&key).await;
        signal_process(pid, Signal::CONT);
        assert_unavailable(&answer, "no answer within 2s");
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert_eq!(task, Lookup::Found(TaskStatus::Unknown));
    }

    #[tokio::test]
    async fn a_dead_shims_socket_is_unavailable() {
        let server = Containerd::start();
        let key = server.key("dead");
        server.run("dead");
        let socket = socket(&server, &key);
        stop_process(server.pid());
        signal_process(server.shim("dead"), Signal::KILL);
        wait("nobody listens", || std::os::unix::net::UnixStream::connect(&socket).is_err());
        assert_unavailable(&shim::task(&socket, &key).await, "refused");
    }

    #[test]
    fn a_private_containerd_is_discovered_from_the_table_of_sockets() {
        let server = Containerd::start();
        let found = discover::addresses(&[], &[], Path::new("/proc/1/net/unix"));
        let found = found.found().expect("a table");
        assert!(
            found.iter().any(|one| one.address == server.address() && one.ownership == Ownership::Foreign)
        );
    }
}
