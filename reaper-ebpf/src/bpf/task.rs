//! Lifecycle of processes.
//!
//! A process is its thread group: threads are filtered out, and the end of a process is the end of its last
//! thread, which often is not the leader. Whether the process is watched is asked first: for nearly all the answer is
//! no, and each further field is another line of cold memory.

use aya_ebpf::programs::BtfTracePointContext;
use reaper_ebpf::abi::{Kind, Record, WATCH_ROOT, WATCH_RUNTIME};

use crate::kread::{self, Task};
use crate::{emit, filter, maps};

/// Arguments: the creating thread, the new one. With `CLONE_PARENT`, as runc uses it, the creator is not the
/// new process's parent.
pub(crate) fn try_fork(ctx: &BtfTracePointContext) -> Option<()> {
    let creator = Task::arg(ctx, 0);
    let peer = creator.tgid();
    let reason = filter::watched(peer, || creator.leader().start())?;
    let child = Task::arg(ctx, 1);
    let tgid = child.tgid();
    if child.pid() != tgid {
        return None;
    }
    let comm = creator.comm();
    if reason != WATCH_ROOT && !filter::is_runtime(comm) {
        return None;
    }
    let (start, since) = (child.start(), creator.leader().start());
    filter::watch(tgid, start, WATCH_RUNTIME);
    emit::process(&Record { tgid, peer, aux: start, aux2: since, comm, ..emit::record(Kind::FORK) });
    Some(())
}

/// After a success: the thread that called it is the leader now and has the leader's start
/// (`fs/exec.c:de_thread`).
pub(crate) fn try_exec(ctx: &BtfTracePointContext) -> Option<()> {
    let task = Task::arg(ctx, 0);
    let (tgid, comm) = (task.tgid(), task.comm());
    if filter::watched(tgid, || task.start()).is_none() {
        if !filter::is_runtime(comm) {
            return None;
        }
        filter::watch(tgid, task.start(), WATCH_RUNTIME);
    }
    emit::process(&Record { tgid, aux: task.start(), comm, ..emit::record(Kind::EXEC) });
    Some(())
}

/// Fires for each thread, before it leaves its cgroup.
pub(crate) fn try_exit(ctx: &BtfTracePointContext) -> Option<()> {
    let task = Task::arg(ctx, 0);
    let tgid = task.tgid();
    filter::watched(tgid, || task.leader().start())?;
    if task.live_threads() != 0 {
        return None;
    }
    // Two threads that end together may both see no live thread: only one of them removes the entry.
    if filter::unwatch(tgid) {
        let (start, code, comm) = (task.leader().start(), task.exit_code(), task.comm());
        emit::process(&Record { tgid, aux: start, code, comm, ..emit::record(Kind::EXIT) });
    }
    Some(())
}

/// Says what the reads above return for the loader, which knows the right answers. The v2 cgroup's id is sent
/// twice, by offsets and by helper.
pub(crate) fn try_self_check(ctx: &BtfTracePointContext) -> Option<()> {
    let task = Task::arg(ctx, 0);
    if u64::from(task.tgid()) != maps::SELF_TGID.load() {
        return None;
    }
    let (leader, cgroup) = (task.leader(), task.cgroup());
    emit::process(&Record {
        id: cgroup.id(),
        aux: leader.start(),
        aux2: kread::current_cgroup_id(),
        hierarchy: cgroup.hierarchy(),
        level: cgroup.level(),
        tgid: leader.pid(),
        peer: leader.parent().tgid(),
        code: task.live_threads(),
        comm: leader.comm(),
        ..emit::record(Kind::SELF_CHECK)
    });
    Some(())
}
