//! The BPF programs: one thin entry a tracepoint, each over a `try_*` body.
//!
//! Two sets over the same maps, of which one is loaded. The first is `tp_btf`: typed arguments, direct loads, no kprobe, no trampoline, no `bpf_probe_read`, so that they
//! load under lockdown and on kernels without kprobes. The second, `classic`, is for kernels without type information.
//! They say when and where to look, nothing more: what is
//! true is read again by user space.
//!
//! # Invariants
//! - No per-CPU scratch: from Linux 7.0 on a tracing program can be preempted by another (measured trouble in
//!   Falco). Data live on the stack or in a ring reservation.
//! - A program that reports returns 0 whatever happens; what it could not say is counted in `LOST`.
//! - The guard refuses only threads of ours, which asked for it, and only what they did not mean.
#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "sections and symbols of a BPF object are made by unsafe attributes")]
#![expect(clippy::needless_pass_by_value, reason = "the signature that the entry macro calls")]
#![expect(clippy::inline_always, reason = "a BPF-to-BPF call forgets what the verifier knew of its pointers")]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "counters wrap; constants only"
)]
#![expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "64-bit target, constant sizes")]

mod cgroup;
mod classic;
mod emit;
mod filter;
mod guard;
mod kread;
mod maps;
mod signal;
mod task;

use aya_ebpf::macros::{btf_tracepoint, lsm, tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, LsmContext, TracePointContext};

/// `asm-generic/errno-base.h`.
const EPERM: i32 = 1;

#[btf_tracepoint(function = "cgroup_mkdir")]
fn cgroup_mkdir(ctx: BtfTracePointContext) -> Option<()> {
    cgroup::try_mkdir(&ctx)
}

#[btf_tracepoint(function = "cgroup_rmdir")]
fn cgroup_rmdir(ctx: BtfTracePointContext) -> Option<()> {
    cgroup::try_rmdir(&ctx)
}

#[btf_tracepoint(function = "cgroup_notify_populated")]
fn cgroup_notify_populated(ctx: BtfTracePointContext) -> Option<()> {
    cgroup::try_populated(&ctx)
}

#[btf_tracepoint(function = "cgroup_notify_frozen")]
fn cgroup_notify_frozen(ctx: BtfTracePointContext) -> Option<()> {
    cgroup::try_frozen(&ctx)
}

#[btf_tracepoint(function = "sched_process_fork")]
fn sched_process_fork(ctx: BtfTracePointContext) -> Option<()> {
    task::try_fork(&ctx)
}

#[btf_tracepoint(function = "sched_process_exec")]
fn sched_process_exec(ctx: BtfTracePointContext) -> Option<()> {
    task::try_exec(&ctx)
}

#[btf_tracepoint(function = "sched_process_exit")]
fn sched_process_exit(ctx: BtfTracePointContext) -> Option<()> {
    task::try_exit(&ctx)
}

#[btf_tracepoint(function = "signal_generate")]
fn signal_generate(ctx: BtfTracePointContext) -> Option<()> {
    signal::try_generate(&ctx)
}

#[btf_tracepoint(function = "sched_process_fork")]
fn self_check(ctx: BtfTracePointContext) -> Option<()> {
    task::try_self_check(&ctx)
}

#[tracepoint(category = "cgroup", name = "cgroup_mkdir")]
fn cgroup_mkdir_classic(ctx: TracePointContext) -> Option<()> {
    classic::try_mkdir(&ctx)
}

#[tracepoint(category = "cgroup", name = "cgroup_rmdir")]
fn cgroup_rmdir_classic(ctx: TracePointContext) -> Option<()> {
    classic::try_rmdir(&ctx)
}

#[tracepoint(category = "cgroup", name = "cgroup_notify_populated")]
fn cgroup_notify_populated_classic(ctx: TracePointContext) -> Option<()> {
    classic::try_populated(&ctx)
}

#[tracepoint(category = "cgroup", name = "cgroup_notify_frozen")]
fn cgroup_notify_frozen_classic(ctx: TracePointContext) -> Option<()> {
    classic::try_frozen(&ctx)
}

#[tracepoint(category = "task", name = "task_newtask")]
fn task_newtask_classic(ctx: TracePointContext) -> Option<()> {
    classic::try_newtask(&ctx)
}

#[tracepoint(category = "sched", name = "sched_process_exec")]
fn sched_process_exec_classic(_ctx: TracePointContext) -> Option<()> {
    classic::try_exec()
}

#[tracepoint(category = "sched", name = "sched_process_exit")]
fn sched_process_exit_classic(ctx: TracePointContext) -> Option<()> {
    classic::try_exit(&ctx)
}

#[tracepoint(category = "task", name = "task_newtask")]
fn self_check_classic(ctx: TracePointContext) -> Option<()> {
    classic::try_self_check(&ctx)
}

/// Loaded where the kernel calls LSM programs. What a program before this one refused stays refused; the verifier wants to
/// see the answer.
#[lsm(hook = "inode_rmdir")]
fn inode_rmdir(ctx: LsmContext) -> i32 {
    let before: i32 = ctx.arg(2);
    if before == 0 && guard::may_remove(&ctx) { 0 } else { -EPERM }
}

/// `GPL` helpers need a compatible licence (`include/linux/license.h:license_is_gpl_compatible`).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never reached: a panic in a program is an endless loop, which the verifier refuses at load.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
