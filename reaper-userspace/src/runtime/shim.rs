//! A shim's own answer about one container, over ttrpc on its socket.
//!
//! Asks `State` and nothing else: `Shutdown`, `Delete` and `Kill` have no place here, and even `Connect` is left
//! out, as Kata answers it under the lock that a booting sandbox holds.
//!
//! # Invariants
//! - Only a shim's `NotFound` about the container is absence, never one about the service or the method: ttrpc
//!   before 1.1 says `NotFound`, too, when it does not serve `containerd.task.v3.Task`. So version 2 is asked
//!   first, which every such shim serves, and version 3 only where the shim said that it does not serve 2.
//! - A socket that nobody answers on proves nothing: the shim may be stopped, overloaded or have lost its path to
//!   a second one. While a create is in flight, shims of containerd 1.x do not answer (they hold a lock), those
//!   of 2.x say `NotFound`: who needs to know looks for a runtime process in flight as well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use containerd_shim_protos::api::{StateRequest, StateResponse, Status as ProcessStatus};
use containerd_shim_protos::protobuf::{self, EnumOrUnknown, Message as _};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use sha2::{Digest as _, Sha256};
use tokio::net::UnixStream;
use tokio::time::timeout;
use ttrpc::asynchronous::Client;
use ttrpc::asynchronous::transport::Socket;
use ttrpc::proto::KeyValue;
use ttrpc::{Code, Request, Status};

use super::{reason, shown};
use crate::fact::TaskStatus;
use crate::ident::{ContainerId, ContainerKey, Lookup, Namespace};

/// How long a shim may take; containerd itself waits as long for a task's state.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Where shims listen unless containerd 2.3 or later is configured otherwise.
const SOCKETS: &str = "/run/containerd/s";

const SERVICE_V2: &str = "containerd.task.v2.Task";
const SERVICE_V3: &str = "containerd.task.v3.Task";

/// Why there is no answer; [`task`] adds whose and about which container.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("connect")]
    Connect(#[source] std::io::Error),
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
    #[error("call")]
    Call(#[source] Box<ttrpc::Error>),
    #[error("the shim refused: {code:?} {message:?}")]
    Refused { code: EnumOrUnknown<Code>, message: String },
    #[error("decode the answer")]
    Decode(#[source] protobuf::Error),
    #[error("the answer is about {0:?}")]
    Other(String),
    #[error("the answer has a status of {0}, which is none")]
    TaskStatus(i32),
}

/// Path of the socket of a group's shim, as the shim derives it
/// (`pkg/shim/util_unix.go:CreateSocketAddress`): `address` is containerd's, in exactly its words.
pub fn socket_path(address: &str, namespace: &Namespace, group: &ContainerId) -> PathBuf {
    let name = clean(&format!("{address}/{namespace}/{group}"));
    let digits = Sha256::digest(name.as_bytes()).into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let hex: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
    Path::new(SOCKETS).join(hex)
}

/// The socket that a shim's address names; `None` for abstract sockets and other transports.
pub fn socket_of(address: &str) -> Option<&Path> {
    address.strip_prefix("unix://").filter(|path| path.starts_with('/')).map(Path::new)
}

/// Whether anybody listens at a socket, whether or not it answers: `NotFound` only if the kernel refuses the connection
/// or there is no such file. The connection is closed at once.
pub fn listener(socket: &Path) -> Lookup<()> {
    match connect(socket) {
        // EAGAIN: somebody listens, and its backlog is full.
        Ok(()) | Err(Errno::AGAIN) => Lookup::Found(()),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Lookup::NotFound,
        Err(errno) => Lookup::Unavailable(format!("connect to {}: {errno}", shown(socket))),
    }
}

fn connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

/// What the shim at this socket says about one container.
pub async fn task(socket: &Path, key: &ContainerKey) -> Lookup<TaskStatus> {
    match timeout(DEADLINE, ask(socket, key)).await.unwrap_or(Err(ShimError::Deadline)) {
        Ok(Some(status)) => Lookup::Found(status),
        Ok(None) => Lookup::NotFound,
        Err(error) => Lookup::Unavailable(format!(
            "State of {key} from the shim at {}: {}",
            shown(socket),
            reason(&error)
        )),
    }
}

async fn ask(socket: &Path, key: &ContainerKey) -> Result<Option<TaskStatus>, ShimError> {
    // ttrpc's own connect blocks the thread while the shim's backlog is full.
    let stream = UnixStream::connect(socket).await.map_err(ShimError::Connect)?;
    let client = Client::new(Socket::new(stream));
    let answer = match state(&client, SERVICE_V2, key).await {
        Err(ttrpc::Error::RpcStatus(status)) if is_not_served(&status) => {
            state(&client, SERVICE_V3, key).await
        }
        answer => answer,
    };
    match answer {
        Ok(payload) => status(key, &payload).map(Some),
        Err(ttrpc::Error::RpcStatus(status)) if is_absent(&status) => Ok(None),
        Err(ttrpc::Error::RpcStatus(Status { code, message, .. })) => {
            Err(ShimError::Refused { code, message })
        }
        Err(error) => Err(ShimError::Call(Box::new(error))),
    }
}

/// Without a `timeout_nano`: the deadline is one, that of [`task`], which ends the connection.
async fn state(client: &Client, service: &str, key: &ContainerKey) -> ttrpc::Result<Vec<u8>> {
    let message = StateRequest { id: key.id.to_string(), ..StateRequest::default() };
    let payload = message.write_to_bytes().map_err(|error| ttrpc::Error::Others(error.to_string()))?;
    let namespace = KeyValue {
        key: "containerd-namespace-ttrpc".to_owned(),
        value: key.namespace.to_string(),
        ..KeyValue::default()
    };
    let request = Request {
        service: service.to_owned(),
        method: "State".to_owned(),
        payload,
        metadata: vec![namespace],
        ..Request::default()
    };
    client.request(request).await.map(|response| response.payload)
}

fn status(key: &ContainerKey, payload: &[u8]) -> Result<TaskStatus, ShimError> {
    let state = StateResponse::parse_from_bytes(payload).map_err(ShimError::Decode)?;
    if state.id != key.id.as_str() {
        return Err(ShimError::Other(state.id));
    }
    match state.status.enum_value() {
        Ok(ProcessStatus::UNKNOWN) => Ok(TaskStatus::Unknown),
        Ok(ProcessStatus::CREATED) => Ok(TaskStatus::Created),
        Ok(ProcessStatus::RUNNING) => Ok(TaskStatus::Running),
        Ok(ProcessStatus::STOPPED) => Ok(TaskStatus::Stopped),
        Ok(ProcessStatus::PAUSED) => Ok(TaskStatus::Paused),
        Ok(ProcessStatus::PAUSING) => Ok(TaskStatus::Pausing),
        Err(status) => Err(ShimError::TaskStatus(status)),
    }
}

/// The shim does not serve this version: Go says `Unimplemented`, ttrpc for Rust `InvalidArgument`.
fn is_not_served(status: &Status) -> bool {
    let code = status.code.enum_value();
    code == Ok(Code::UNIMPLEMENTED)
        || code == Ok(Code::INVALID_ARGUMENT) && status.message.ends_with("service does not exist")
}

/// `NotFound`, and about a container: not about a service or method (old ttrpc for Go, generated code for Rust),
/// nor an ENOENT that ttrpc for Go turned into this code (`services.go:convertCode`).
fn is_absent(status: &Status) -> bool {
    let about_else = |text: &str| {
        text.starts_with("service ")
            || text.starts_with("method ")
            || text.contains("is not supported")
            || text.contains("no such file or directory")
    };
    status.code.enum_value() == Ok(Code::NOT_FOUND) && !about_else(&status.message)
}

/// Go's `path.Clean` for a path that may be relative: no empty, `.` or inner `..` component.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut components: Vec<&str> = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." if components.last().is_some_and(|last| *last != "..") => drop(components.pop()),
            ".." if rooted => {}
            name => components.push(name),
        }
    }
    let joined = components.join("/");
    if rooted { format!("/{joined}") } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ContainerKey {
        ContainerKey {
            namespace: Namespace::try_from("default").unwrap(),
            id: ContainerId::try_from("t1").unwrap(),
        }
    }

    fn rpc(code: Code, message: &str) -> Status {
        ttrpc::get_status(code, message)
    }

    #[test]
    fn the_socket_is_named_by_the_hash_of_address_namespace_and_group() {
        let socket = |address: &str| socket_path(address, &key().namespace, &key().id);
        // printf %s /run/containerd/containerd.sock/default/t1 | sha256sum
        let want = "/run/containerd/s/df6a0c5cd2e9a1a16d9a3f2447365d9fc6021bc1d3d9a4caa2f5b2c4f773758f";
        assert_eq!(socket("/run/containerd/containerd.sock"), Path::new(want));
        assert_eq!(socket("/run//containerd/./x/../containerd.sock/"), Path::new(want));
        assert_ne!(socket("/run/containerd2/containerd.sock"), Path::new(want));
    }

    #[test]
    fn a_listener_is_found_even_with_a_full_backlog_and_only_a_refusal_is_absence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(listener(&path), Lookup::NotFound);
        let held = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // Nobody accepts, so that the backlog fills up.
        for _ in 0..300 {
            assert_eq!(listener(&path), Lookup::Found(()));
        }
        drop(held);
        assert_eq!(listener(&path), Lookup::NotFound);
        let below_a_file = path.join("s");
        assert!(listener(&below_a_file).unavailable().is_some());
        assert!(listener(&dir.path().join("x".repeat(200))).unavailable().is_some());
    }

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, want) in [
            ("/a/../../b", "/b"),
            ("../a", "../a"),
            ("../../a", "../../a"),
            ("a/../../b", "../b"),
            ("/", "/"),
        ] {
            assert_eq!(clean(path), want, "{path}");
        }
    }

    #[test]
    fn only_not_found_about_the_container_is_absence() {
        for text in
            ["container not created: not found", "container does not exist t1", "can not find container"]
        {
            assert!(is_absent(&rpc(Code::NOT_FOUND, text)), "{text}");
            assert!(!is_absent(&rpc(Code::UNKNOWN, text)), "{text}");
        }
        for text in [
            "service containerd.task.v3.Task",
            "method State",
            "/containerd.task.v3.Task/State is not supported",
            "open /run/x: no such file or directory",
        ] {
            assert!(!is_absent(&rpc(Code::NOT_FOUND, text)), "{text}");
        }
    }

    #[test]
    fn a_version_that_is_not_served_is_told_by_code() {
        assert!(is_not_served(&rpc(Code::UNIMPLEMENTED, "service containerd.task.v2.Task")));
        assert!(is_not_served(&rpc(
            Code::INVALID_ARGUMENT,
            "containerd.task.v2.Task service does not exist"
        )));
        assert!(!is_not_served(&rpc(Code::INVALID_ARGUMENT, "id")));
        assert!(!is_not_served(&rpc(Code::NOT_FOUND, "service containerd.task.v2.Task")));
    }

    #[test]
    fn an_answer_for_another_container_or_of_no_status_is_refused() {
        let answer = |id: &str, raw: i32| {
            let status_field = EnumOrUnknown::from_i32(raw);
            let state = StateResponse { id: id.to_owned(), status: status_field, ..StateResponse::default() };
            status(&key(), &state.write_to_bytes().unwrap())
        };
        assert_eq!(answer("t1", 4).ok(), Some(TaskStatus::Paused));
        assert!(answer("t2", 2).is_err());
        assert!(answer("t1", 9).is_err());
        assert!(status(&key(), b"\xff").is_err());
        assert!(status(&key(), b"").is_err());
    }

    #[test]
    fn an_address_that_is_no_path_has_no_socket() {
        assert_eq!(socket_of("unix:///run/containerd/s/x"), Some(Path::new("/run/containerd/s/x")));
        for address in ["vsock://1:2", "unix://@abstract", "/run/containerd/s/x", ""] {
            assert_eq!(socket_of(address), None, "{address}");
        }
    }
}
