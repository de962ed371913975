//! containerd's own answers, over gRPC on its Unix socket.
//!
//! Reads only: namespaces, container records, tasks, and which process serves the socket. A daemon that is
//! down, starting (it serves only after all shims are loaded), stopped or not a containerd gives `Unavailable`.
//!
//! # Invariants
//! - Every call ends within the deadline, connecting included.
//! - A task is `NotFound` only if containerd has no task of that name. `tasks.Get` says gRPC `NotFound` in three
//!   more cases (containerd 1.6 to 2.2, `services/tasks/local.go:{Get,getTask,getProcessState}`), told apart by
//!   text: there is no *record* (then the list of tasks decides), the *shim* answered `NotFound` (a create in
//!   flight), and the connection to the shim is closed. The last two are `Unavailable`.

use std::time::Duration;

use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::namespaces_client::NamespacesClient;
use containerd_client::services::v1::tasks_client::TasksClient;
use containerd_client::services::v1::{
    GetContainerRequest, GetRequest, ListContainersRequest, ListNamespacesRequest, ListTasksRequest,
};
use containerd_client::types::v1::{Process, Status as ProcessStatus};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::metadata::errors::InvalidMetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::{reason, record};
use crate::fact::{ContainerRecord, Ownership, ServerFact, TaskStatus};
use crate::ident::{ContainerId, ContainerKey, Lookup, NameError, Namespace, ProcessKey, StartTicks, Tgid};

/// Longer than the 2 s after which containerd itself gives up asking a shim for a task's state.
pub const DEADLINE: Duration = Duration::from_secs(3);

/// containerd sends no message larger than this (`defaults.DefaultMaxSendMsgSize`).
const MESSAGE_LIMIT: usize = 16 << 20;

/// One containerd.
///
/// The connection is made by the first call, kept, and dropped by a call that fails.
#[derive(Debug)]
pub struct Containerd {
    address: String,
    ownership: Ownership,
    deadline: Duration,
    channel: Mutex<Option<Channel>>,
}

#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("connect to containerd at {address} (is it running, is the address right?)")]
    Connect { address: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{call} of containerd at {address} gave no answer within {deadline:?}")]
    Deadline { call: &'static str, address: String, deadline: Duration },
    #[error("{call} of containerd at {address}")]
    Status { call: &'static str, address: String, source: Box<Status> },
    #[error("containerd at {address} named something that cannot be")]
    Name { address: String, source: NameError },
    #[error("namespace {namespace} cannot be sent to containerd")]
    Namespace { namespace: Namespace, source: InvalidMetadataValue },
    #[error("containerd at {address} has task {key} with a status of {status}, which is none")]
    TaskStatus { address: String, key: ContainerKey, status: i32 },
    #[error("containerd at {address} has task {key}, but not its shim's word on it")]
    Shim { address: String, key: ContainerKey, source: Box<Status> },
    #[error("containerd at {address} is served by a process outside of the PID namespace")]
    Peer { address: String },
    #[error("{address} is served by user {uid}, so nothing is said to it")]
    User { address: String, uid: u32 },
}

// === impl Containerd ===

impl Containerd {
    /// The containerd at an address: a path, with or without `unix://`. Nothing is contacted yet.
    pub fn new(address: String, ownership: Ownership, deadline: Duration) -> Self {
        Self { address, ownership, deadline, channel: Mutex::new(None) }
    }

    /// Its address, as given.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether it is ours.
    pub const fn ownership(&self) -> Ownership {
        self.ownership
    }

    /// The process that serves the socket: the peer of a new connection, which is the process that called
    /// `listen`, as containerd does itself (shims do not: theirs has exited). A foreign one must be root's; who
    /// uses this first speaks to nobody else.
    pub async fn server(&self, start_of: impl Fn(Tgid) -> Lookup<StartTicks>) -> Lookup<ServerFact> {
        match self.peer().await {
            Ok(tgid) => match start_of(tgid) {
                Lookup::Found(start) => Lookup::Found(ServerFact { process: ProcessKey { tgid, start } }),
                Lookup::NotFound => Lookup::Unavailable(format!(
                    "process {tgid}, which began to serve {}, has exited",
                    self.address
                )),
                Lookup::Unavailable(reason) => Lookup::Unavailable(reason),
            },
            Err(error) => Lookup::Unavailable(reason(&error)),
        }
    }

    /// All container records of all namespaces, one at a time reduced to what correlation needs.
    pub async fn records(&self) -> Lookup<Vec<ContainerRecord>> {
        answer(self.read_records().await.map(Some))
    }

    /// Whether containerd has a record of the container. An unknown namespace has none.
    pub async fn record(&self, key: &ContainerKey) -> Lookup<()> {
        answer(self.read_record(key).await)
    }

    /// Status of a task, as the shim told containerd within 2 s; `Unknown` if it did not.
    pub async fn task(&self, key: &ContainerKey) -> Lookup<TaskStatus> {
        answer(self.read_task(key).await)
    }

    /// All tasks of all namespaces. A hint: containerd leaves out those whose shim says `NotFound`, since 1.7
    /// also those whose shim does not answer. Absence is asked by [`Self::task`].
    pub async fn tasks(&self) -> Lookup<Vec<(ContainerKey, TaskStatus)>> {
        answer(self.read_tasks().await.map(Some))
    }

    async fn read_records(&self) -> Result<Vec<ContainerRecord>, CallError> {
        let mut records = Vec::new();
        for namespace in self.namespaces().await? {
            let request = scoped(&namespace, ListContainersRequest::default())?;
            let reduced = self.ask("containers.ListStream", async |channel| {
                let mut client = ContainersClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
                let mut stream = client.list_stream(request).await?.into_inner();
                let mut reduced = Vec::new();
                while let Some(message) = stream.message().await? {
                    reduced.extend(message.container.map(|container| record::reduce(&container, &namespace)));
                }
                Ok(reduced)
            });
            for record in reduced.await? {
                records.push(record.map_err(|source| self.bad_name(source))?);
            }
        }
        Ok(records)
    }

    async fn read_record(&self, key: &ContainerKey) -> Result<Option<()>, CallError> {
        let request = scoped(&key.namespace, GetContainerRequest { id: key.id.to_string() })?;
        let got = self.ask("containers.Get", async |channel| {
            let mut client = ContainersClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
            client.get(request).await.map(drop)
        });
        match got.await {
            Ok(()) => Ok(Some(())),
            Err(CallError::Status { source, .. }) if no_record(&source, &key.id) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_task(&self, key: &ContainerKey) -> Result<Option<TaskStatus>, CallError> {
        let message = GetRequest { container_id: key.id.to_string(), exec_id: String::new() };
        let request = scoped(&key.namespace, message)?;
        let got = self.ask("tasks.Get", async |channel| {
            TasksClient::new(channel).get(request).await.map(|response| response.into_inner().process)
        });
        match got.await {
            Ok(process) => self.status(key, &process.unwrap_or_default()).map(Some),
            Err(CallError::Status { source, .. }) if no_task(&source, &key.id) => Ok(None),
            Err(CallError::Status { source, .. }) if no_record(&source, &key.id) => {
                let tasks = self.list_tasks(&key.namespace).await?;
                Ok(tasks.into_iter().find_map(|(listed, status)| (listed == *key).then_some(status)))
            }
            Err(CallError::Status { source, address, .. }) if source.code() == Code::NotFound => {
                Err(CallError::Shim { address, key: key.clone(), source })
            }
            Err(error) => Err(error),
        }
    }

    async fn read_tasks(&self) -> Result<Vec<(ContainerKey, TaskStatus)>, CallError> {
        let mut tasks = Vec::new();
        for namespace in self.namespaces().await? {
            tasks.extend(self.list_tasks(&namespace).await?);
        }
        Ok(tasks)
    }

    async fn list_tasks(&self, namespace: &Namespace) -> Result<Vec<(ContainerKey, TaskStatus)>, CallError> {
        let request = scoped(namespace, ListTasksRequest::default())?;
        let listed = self.ask("tasks.List", async |channel| {
            let mut client = TasksClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
            client.list(request).await.map(|response| response.into_inner().tasks)
        });
        let mut tasks = Vec::new();
        for process in listed.await? {
            let id = ContainerId::try_from(process.id.as_str()).map_err(|source| self.bad_name(source))?;
            let key = ContainerKey { namespace: namespace.clone(), id };
            let status = self.status(&key, &process)?;
            tasks.push((key, status));
        }
        Ok(tasks)
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>, CallError> {
        let listed = self.ask("namespaces.List", async |channel| {
            let mut client = NamespacesClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
            client
                .list(ListNamespacesRequest::default())
                .await
                .map(|response| response.into_inner().namespaces)
        });
        let named = listed.await?.into_iter().map(|namespace| Namespace::try_from(namespace.name));
        named.collect::<Result<_, _>>().map_err(|source| self.bad_name(source))
    }

    fn status(&self, key: &ContainerKey, process: &Process) -> Result<TaskStatus, CallError> {
        match ProcessStatus::try_from(process.status) {
            Ok(ProcessStatus::Unknown) => Ok(TaskStatus::Unknown),
            Ok(ProcessStatus::Created) => Ok(TaskStatus::Created),
            Ok(ProcessStatus::Running) => Ok(TaskStatus::Running),
            Ok(ProcessStatus::Stopped) => Ok(TaskStatus::Stopped),
            Ok(ProcessStatus::Paused) => Ok(TaskStatus::Paused),
            Ok(ProcessStatus::Pausing) => Ok(TaskStatus::Pausing),
            Err(_) => Err(CallError::TaskStatus {
                address: self.address.clone(),
                key: key.clone(),
                status: process.status,
            }),
        }
    }

    /// Makes one call within the deadline.
    async fn ask<T>(
        &self,
        call: &'static str,
        request: impl AsyncFnOnce(Channel) -> Result<T, Status>,
    ) -> Result<T, CallError> {
        let asked = async {
            request(self.channel().await?).await.map_err(|status| CallError::Status {
                call,
                address: self.address.clone(),
                source: Box::new(status),
            })
        };
        let result = timeout(self.deadline, asked).await.unwrap_or_else(|_| {
            Err(CallError::Deadline { call, address: self.address.clone(), deadline: self.deadline })
        });
        if result.as_ref().is_err_and(|error| !error.is_an_answer()) {
            *self.channel.lock().await = None;
        }
        result
    }

    async fn channel(&self) -> Result<Channel, CallError> {
        let mut kept = self.channel.lock().await;
        if let Some(channel) = kept.as_ref() {
            return Ok(channel.clone());
        }
        let channel =
            containerd_client::connect(self.path()).await.map_err(|error| self.unreachable(error))?;
        *kept = Some(channel.clone());
        Ok(channel)
    }

    async fn peer(&self) -> Result<Tgid, CallError> {
        let connected = timeout(self.deadline, UnixStream::connect(self.path())).await;
        let stream = connected
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(|error| self.unreachable(error))?;
        let credentials = stream.peer_cred().map_err(|error| self.unreachable(error))?;
        // Anybody can listen on a socket of any name; the configured ones are the operator's choice.
        if self.ownership == Ownership::Foreign && credentials.uid() != 0 {
            return Err(CallError::User { address: self.address.clone(), uid: credentials.uid() });
        }
        credentials
            .pid()
            .and_then(|pid| Tgid::new(pid.into()))
            .ok_or_else(|| CallError::Peer { address: self.address.clone() })
    }

    fn path(&self) -> &str {
        self.address.strip_prefix("unix://").unwrap_or(&self.address)
    }

    fn unreachable(&self, source: impl std::error::Error + Send + Sync + 'static) -> CallError {
        CallError::Connect { address: self.address.clone(), source: Box::new(source) }
    }

    fn bad_name(&self, source: NameError) -> CallError {
        CallError::Name { address: self.address.clone(), source }
    }
}

// === impl CallError ===

impl CallError {
    /// True if containerd is well and said that it does not have something.
    fn is_an_answer(&self) -> bool {
        matches!(self, Self::Status { source, .. } if source.code() == Code::NotFound)
    }
}

fn answer<T>(result: Result<Option<T>, CallError>) -> Lookup<T> {
    match result {
        Ok(Some(value)) => Lookup::Found(value),
        Ok(None) => Lookup::NotFound,
        Err(error) => Lookup::Unavailable(reason(&error)),
    }
}

fn scoped<T>(namespace: &Namespace, message: T) -> Result<Request<T>, CallError> {
    let value = namespace
        .as_str()
        .parse()
        .map_err(|source| CallError::Namespace { namespace: namespace.clone(), source })?;
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", value);
    Ok(request)
}

/// `container "ID" in namespace "NS": not found` (`metadata/containers.go:Get`, also for unknown namespaces).
fn no_record(status: &Status, id: &ContainerId) -> bool {
    status.code() == Code::NotFound
        && status.message().starts_with(&format!("container \"{id}\" in namespace"))
}

/// `task ID not found` (`services/tasks/local.go:getTaskFromContainer`).
fn no_task(status: &Status, id: &ContainerId) -> bool {
    status.code() == Code::NotFound && status.message().starts_with(&format!("task {id} not found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ContainerId {
        ContainerId::try_from("t1").unwrap()
    }

    #[test]
    fn a_task_is_absent_only_by_containerds_own_word_on_it() {
        assert!(no_task(&Status::not_found("task t1 not found"), &id()));
        assert!(no_record(&Status::not_found("container \"t1\" in namespace \"ns\": not found"), &id()));
        for text in [
            "container not created: not found",
            "not found",
            "task t10 not found",
            "container \"t10\" in namespace \"ns\": not found",
            "no such file or directory",
            "service containerd.task.v3.Task",
            "",
        ] {
            let status = Status::not_found(text);
            assert!(!no_task(&status, &id()) && !no_record(&status, &id()), "{text}");
        }
        for code in [Code::Unknown, Code::Unavailable, Code::DeadlineExceeded, Code::Unimplemented, Code::Ok]
        {
            assert!(!no_task(&Status::new(code, "task t1 not found"), &id()), "{code}");
        }
    }

    #[test]
    fn a_status_that_is_none_is_refused() {
        let containerd = Containerd::new("/none".to_owned(), Ownership::Ours, DEADLINE);
        let key = ContainerKey { namespace: Namespace::try_from("ns").unwrap(), id: id() };
        let status = |status| containerd.status(&key, &Process { status, ..Process::default() });
        assert_eq!(status(2).ok(), Some(TaskStatus::Running));
        assert_eq!(status(0).ok(), Some(TaskStatus::Unknown));
        assert!(status(6).is_err());
        assert!(status(-1).is_err());
    }
}
