//! The same questions for kernels without type information: programs on classic tracepoints, which know only what
//! the tracepoint records and who is running.
//!
//! They report less, and never guess: no parent of a new cgroup, no start and no wait status of a process, `BY_NUMBER`
//! instead. A process is a number here, and a number is watched until its end or until it is given out anew.

use aya_ebpf::Global;
use aya_ebpf::programs::TracePointContext;
use reaper_ebpf::abi::{
    BY_NUMBER, CgroupKey, Comm, Kind, Record, START_UNKNOWN, WATCH_ROOT, WATCH_RUNTIME, cgroup_key,
};

use crate::kread::{self, recorded};
use crate::{emit, filter, maps};

/// `linux/sched.h`
const CLONE_THREAD: u32 = 0x0001_0000;
/// Makes the cgroups of containers where it is asked to.
const SYSTEMD: u32 = 1;

/// The record has no parent to ask `TRACKED` for. Cgroups of containers are made by runtimes or by systemd; what
/// others make, as a container below its own, is left out.
pub(crate) fn try_mkdir(ctx: &TracePointContext) -> Option<()> {
    let (tgid, comm) = (kread::current_tgid(), kread::current_comm());
    if tgid != SYSTEMD && !filter::is_runtime(comm) && filter::watched_number(tgid).is_none() {
        return None;
    }
    let record = Record { tgid, comm, ..cgroup(ctx, Kind::MKDIR)? };
    filter::track(&key(&record));
    emit::cgroup(&record);
    Some(())
}

/// Fires on success only.
pub(crate) fn try_rmdir(ctx: &TracePointContext) -> Option<()> {
    let record = cgroup(ctx, Kind::RMDIR)?;
    if !filter::untrack(&key(&record)) {
        return None;
    }
    emit::cgroup(&Record { tgid: kread::current_tgid(), comm: kread::current_comm(), ..record });
    Some(())
}

/// Never looks at who is running: see the typed program.
pub(crate) fn try_populated(ctx: &TracePointContext) -> Option<()> {
    flag(ctx, Kind::POPULATED)
}

/// v2 only.
pub(crate) fn try_frozen(ctx: &TracePointContext) -> Option<()> {
    flag(ctx, Kind::FROZEN)
}

#[inline(always)]
fn flag(ctx: &TracePointContext, kind: Kind) -> Option<()> {
    let place = [&maps::AT_FLAG_ROOT, &maps::AT_FLAG_LEVEL, &maps::AT_FLAG_ID];
    let record = about(ctx, kind, place)?;
    if !filter::is_tracked(&key(&record)) {
        return None;
    }
    let value: i32 = recorded(ctx, &maps::AT_FLAG_VALUE)?;
    emit::cgroup(&Record { value: u8::from(value != 0), ..record });
    Some(())
}

#[inline(always)]
fn cgroup(ctx: &TracePointContext, kind: Kind) -> Option<Record> {
    about(ctx, kind, [&maps::AT_CGROUP_ROOT, &maps::AT_CGROUP_LEVEL, &maps::AT_CGROUP_ID])
}

#[inline(always)]
fn about(ctx: &TracePointContext, kind: Kind, [root, level, id]: [&Global<u16>; 3]) -> Option<Record> {
    let (hierarchy, level, id) = (recorded(ctx, root)?, recorded(ctx, level)?, recorded(ctx, id)?);
    Some(Record { hierarchy, level, id, ..emit::record(kind) })
}

#[inline(always)]
fn key(record: &Record) -> CgroupKey {
    cgroup_key(record.hierarchy, record.id)
}

/// Runs in the creator. `sched_process_fork` does not record whether the new task is a thread; this one does. It fires
/// for every new process, so a number that comes back loses what its last owner left behind.
pub(crate) fn try_newtask(ctx: &TracePointContext) -> Option<()> {
    let flags: u32 = recorded(ctx, &maps::AT_TASK_FLAGS)?;
    if flags & CLONE_THREAD != 0 {
        return None;
    }
    let tgid = recorded(ctx, &maps::AT_TASK_PID)?;
    let peer = kread::current_tgid();
    let Some(comm) = heir(peer) else {
        filter::forget(tgid);
        return None;
    };
    filter::watch(tgid, START_UNKNOWN, WATCH_RUNTIME);
    emit::process(&Record { tgid, peer, comm, value: BY_NUMBER, ..emit::record(Kind::FORK) });
    Some(())
}

/// The name of a creator whose children are watched.
#[inline(always)]
fn heir(creator: u32) -> Option<Comm> {
    let reason = filter::watched_number(creator)?;
    let comm = kread::current_comm();
    (reason == WATCH_ROOT || filter::is_runtime(comm)).then_some(comm)
}

/// After a success: runs in the process, which has its new name.
pub(crate) fn try_exec() -> Option<()> {
    let (tgid, comm) = (kread::current_tgid(), kread::current_comm());
    if filter::watched_number(tgid).is_none() {
        if !filter::is_runtime(comm) {
            return None;
        }
        filter::watch(tgid, START_UNKNOWN, WATCH_RUNTIME);
    }
    emit::process(&Record { tgid, comm, value: BY_NUMBER, ..emit::record(Kind::EXEC) });
    Some(())
}

/// Runs in each thread that ends. Where the kernel does not say which is the last, the end of the leader counts, which
/// as a hint is as good.
pub(crate) fn try_exit(ctx: &TracePointContext) -> Option<()> {
    let (tid, tgid) = kread::current_ids();
    filter::watched_number(tgid)?;
    let last = match maps::AT_EXIT_GROUP_DEAD.load() {
        0 => tid == tgid,
        _ => recorded::<u8>(ctx, &maps::AT_EXIT_GROUP_DEAD)? != 0,
    };
    if last && filter::unwatch(tgid) {
        let comm = kread::current_comm();
        emit::process(&Record { tgid, comm, value: BY_NUMBER, ..emit::record(Kind::EXIT) });
    }
    Some(())
}

/// Says what the reads above return for the loader's own new thread.
pub(crate) fn try_self_check(ctx: &TracePointContext) -> Option<()> {
    let tgid = kread::current_tgid();
    if u64::from(tgid) != maps::SELF_TGID.load() {
        return None;
    }
    let flags: u32 = recorded(ctx, &maps::AT_TASK_FLAGS)?;
    emit::process(&Record {
        tgid,
        peer: recorded(ctx, &maps::AT_TASK_PID)?,
        code: flags as i32,
        comm: kread::current_comm(),
        ..emit::record(Kind::SELF_CHECK)
    });
    Some(())
}
