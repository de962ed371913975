//! The only place that writes to a ring, and that counts what is lost.
#![expect(unsafe_code, reason = "a slot of the per-CPU array is a raw pointer")]

use aya_ebpf::helpers::generated::bpf_ktime_get_boot_ns;
use aya_ebpf::maps::RingBuf;
use reaper_ebpf::abi::{Counter, Kind, Record};

use crate::maps;

/// A record of this kind, stamped.
#[inline(always)]
pub(crate) fn record(kind: Kind) -> Record {
    // SAFETY: the helper takes nothing and returns a number.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    Record::new(kind, now)
}

/// To the ring of cgroups.
#[inline(always)]
pub(crate) fn cgroup(record: &Record) {
    send(&maps::CGROUP_RING, record);
}

/// To the ring of processes.
#[inline(always)]
pub(crate) fn process(record: &Record) {
    send(&maps::PROCESS_RING, record);
}

/// Counts a loss, which user space answers with a resync.
#[inline(always)]
pub(crate) fn lost(counter: Counter) {
    if let Some(slot) = maps::LOST.get_ptr_mut(counter.0) {
        // SAFETY: the map returned the address of an aligned u64 that lives as long as the program, on this CPU
        // only. A program that interrupts this one here may take one increment with it, never all: the number
        // still changes, and a change is all that a resync needs.
        unsafe { *slot += 1 };
    }
}

#[inline(always)]
fn send(ring: &RingBuf, record: &Record) {
    match ring.reserve::<Record>(0) {
        Some(mut entry) => {
            entry.write(*record);
            entry.submit(0);
        }
        None => lost(Counter::of(Kind(record.kind))),
    }
}
