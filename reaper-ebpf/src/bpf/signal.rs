//! What this daemon kills, as the kernel sees it: user space compares it with what it meant to kill.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::programs::BtfTracePointContext;
use reaper_ebpf::abi::{Kind, Record};

use crate::kread::Task;
use crate::{emit, maps};

const SIGKILL: i32 = 9;

/// Arguments: the signal, what the sender says, the task it is for. Runs in the sender, whatever the way: a pidfd, a
/// number, `cgroup.kill` (`kernel/signal.c:__send_signal_locked`). Nearly all signals are others', or other signals.
pub(crate) fn try_generate(ctx: &BtfTracePointContext) -> Option<()> {
    let signal: i32 = ctx.arg(0);
    if signal != SIGKILL || u64::from(ctx.tgid()) != maps::SELF_TGID.load() {
        return None;
    }
    let task = Task::arg(ctx, 2);
    let leader = task.leader();
    let (tgid, start, comm) = (task.tgid(), leader.start(), leader.comm());
    emit::process(&Record { tgid, aux: start, peer: ctx.tgid(), comm, ..emit::record(Kind::KILL) });
    Some(())
}
