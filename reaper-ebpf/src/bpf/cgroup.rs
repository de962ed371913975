//! Lifecycle of cgroups.
//!
//! These tracepoints fire under the kernel's global path lock with interrupts off (`kernel/cgroup/cgroup.c`,
//! `TRACE_CGROUP_PATH`): every other cgroup tracepoint of the machine waits meanwhile.

use aya_ebpf::programs::BtfTracePointContext;
use reaper_ebpf::abi::{CgroupKey, Kind, Record, cgroup_key};

use crate::kread::{self, Cgroup};
use crate::{emit, filter};

/// A child of a tracked cgroup is tracked from its first moment on; others are none of our business.
pub(crate) fn try_mkdir(ctx: &BtfTracePointContext) -> Option<()> {
    let cgroup = Cgroup::arg(ctx, 0);
    let parent = cgroup.parent()?.id();
    if !filter::is_tracked(&cgroup_key(cgroup.hierarchy(), parent)) {
        return None;
    }
    filter::track(&key(cgroup));
    emit::cgroup(&Record { aux: parent, ..by_current(Kind::MKDIR, cgroup) });
    Some(())
}

/// Fires on success only.
pub(crate) fn try_rmdir(ctx: &BtfTracePointContext) -> Option<()> {
    let cgroup = Cgroup::arg(ctx, 0);
    if !filter::untrack(&key(cgroup)) {
        return None;
    }
    emit::cgroup(&by_current(Kind::RMDIR, cgroup));
    Some(())
}

/// Never looks at `current`: from Linux 6.19 on it is whatever task runs when the dead one is put away.
pub(crate) fn try_populated(ctx: &BtfTracePointContext) -> Option<()> {
    flag(ctx, Kind::POPULATED)
}

/// v2 only: the v1 freezer has no tracepoint. `current` is as meaningless as above.
pub(crate) fn try_frozen(ctx: &BtfTracePointContext) -> Option<()> {
    flag(ctx, Kind::FROZEN)
}

#[inline(always)]
fn flag(ctx: &BtfTracePointContext, kind: Kind) -> Option<()> {
    let cgroup = Cgroup::arg(ctx, 0);
    if !filter::is_tracked(&key(cgroup)) {
        return None;
    }
    // Arguments: cgroup, path, value.
    let value: i32 = ctx.arg(2);
    emit::cgroup(&Record { value: u8::from(value != 0), ..about(kind, cgroup) });
    Some(())
}

#[inline(always)]
fn key(cgroup: Cgroup) -> CgroupKey {
    cgroup_key(cgroup.hierarchy(), cgroup.id())
}

#[inline(always)]
fn about(kind: Kind, cgroup: Cgroup) -> Record {
    Record { id: cgroup.id(), hierarchy: cgroup.hierarchy(), level: cgroup.level(), ..emit::record(kind) }
}

/// mkdir and rmdir run in the process that asked for them.
#[inline(always)]
fn by_current(kind: Kind, cgroup: Cgroup) -> Record {
    Record { tgid: kread::current_tgid(), comm: kread::current_comm(), ..about(kind, cgroup) }
}
