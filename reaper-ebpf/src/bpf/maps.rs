//! The maps and the globals. Names are those of [`reaper_ebpf::abi::name`] [`reaper_ebpf::kernel_fields`]
//! and [`reaper_ebpf::tracepoint_fields`].
#![expect(unsafe_code, reason = "a map or global is found by its section and its unmangled symbol")]

use aya_ebpf::Global;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf};
use reaper_ebpf::abi::{COUNTERS, CgroupKey, FILTER_LEN, WatchEntry};

/// 819 records: a create makes some dozen. Each byte counts twice in the reader's memory, as the data pages of a ring are
/// mapped twice; what is behind it waits in user space. A full ring is counted, and healed by a resync.
const CGROUP_RING_BYTES: u32 = 64 * 1024;

/// 1,638 records: a tenth of a second of one processor that does nothing but fork watched processes.
const PROCESS_RING_BYTES: u32 = 128 * 1024;

/// Cgroups whose events are reported: eight hierarchies of 2,000 containers.
#[map]
pub(crate) static TRACKED: HashMap<CgroupKey, u32> = HashMap::with_max_entries(16_384, 0);

/// Processes whose life is reported.
#[map]
pub(crate) static WATCH: HashMap<u32, WatchEntry> = HashMap::with_max_entries(4_096, 0);

/// Which numbers `WATCH` surely has not.
#[map]
pub(crate) static FILTER: Array<u64> = Array::with_max_entries(FILTER_LEN, 0);

/// Lifecycle of cgroups.
#[map]
pub(crate) static CGROUP_RING: RingBuf = RingBuf::with_byte_size(CGROUP_RING_BYTES, 0);

/// Lifecycle of processes.
#[map]
pub(crate) static PROCESS_RING: RingBuf = RingBuf::with_byte_size(PROCESS_RING_BYTES, 0);

/// What was lost, by [`Counter`](reaper_ebpf::abi::Counter).
#[map]
pub(crate) static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTERS, 0);

/// Which directory, by its inode, a thread of ours is about to remove.
#[map]
pub(crate) static ARMED: HashMap<u64, u64> = HashMap::with_max_entries(64, 0);

/// Thread group id of the process that loads the object.
#[unsafe(no_mangle)]
pub(crate) static SELF_TGID: Global<u64> = Global::new(0);

/// One global a kernel field: its offset, set before the load. `.rodata` is frozen, so the verifier knows the
/// values and accepts `pointer + offset` as a typed field access. 16 bits hold every offset, and all of them fit one
/// line of the cache: a machine that forks and executes has it cold each time.
macro_rules! offsets {
    ($($global:ident = $structure:ident . $member:ident;)*) => { $(
        #[unsafe(no_mangle)]
        pub(crate) static $global: Global<u16> = Global::new(0);
    )* };
}

reaper_ebpf::kernel_fields!(offsets);

/// The same for what tracepoints record.
macro_rules! places {
    ($($global:ident = $category:ident / $tracepoint:ident . $field:ident, $bytes:literal;)*) => { $(
        #[unsafe(no_mangle)]
        pub(crate) static $global: Global<u16> = Global::new(0);
    )* };
}

reaper_ebpf::tracepoint_fields!(places);

/// Zero where the kernel does not say whether the thread that ends is the last one.
#[unsafe(no_mangle)]
pub(crate) static AT_EXIT_GROUP_DEAD: Global<u16> = Global::new(0);
