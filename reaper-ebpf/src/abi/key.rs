//! Keys and values of the maps: plain arrays, so that no padding can differ between the two sides.

/// Key of `TRACKED`: hierarchy, cgroup id. Ids of different hierarchies collide.
pub type CgroupKey = [u64; 2];

/// Value of `WATCH`, whose key is the thread group id: start in nanoseconds since boot, then why it is watched.
///
/// User space knows starts only in ticks of 10 ms and rounds down, so both sides compare ticks.
pub type WatchEntry = [u64; 2];

/// Value of `TRACKED`; only the key's presence means something.
pub const TRACKED_MARK: u32 = 1;

/// Watched because user space said so: every process it makes is watched.
pub const WATCH_ROOT: u64 = 1;

/// Watched as a runtime's process or made by one: what it makes is watched only while its comm is a runtime's.
/// Without that limit a fork storm inside a container would be reported process by process.
pub const WATCH_RUNTIME: u64 = 2;

/// The start in a `WATCH` entry that a classic program made: it knows the number only, and relies on seeing each number
/// given out anew.
pub const START_UNKNOWN: u64 = 0;

/// The key of a cgroup.
pub const fn cgroup_key(hierarchy: u32, id: u64) -> CgroupKey {
    // `u64::from` is not const.
    #[expect(clippy::as_conversions, reason = "widening, in a const fn")]
    [hierarchy as u64, id]
}

/// Slots of `FILTER`, which tells which numbers `WATCH` surely has not: nearly every process is nobody's business, and
/// the filter says so from one line of memory where the map needs several.
///
/// A slot is two elements, [`filter_elements`]. Whoever puts a number into `WATCH` sets both; only user space clears,
/// one of them at a time, and fills it again from `WATCH` before it turns to the other. So at each moment one of the
/// two at least is set for every number in `WATCH`.
pub const FILTER_SLOTS: u32 = 1_024;

/// Elements of `FILTER`. With 8 bytes each it stays below the 32 KiB up to which the kernel takes memory from its
/// linear mapping, which is never cold in the TLB (`kernel/bpf/syscall.c:__bpf_map_area_alloc`).
pub const FILTER_LEN: u32 = 2 * FILTER_SLOTS;

/// Value of a `FILTER` element whose slot may have a watched number.
pub const FILTER_MARK: u64 = 1;

/// The two elements of a number's slot.
pub const fn filter_elements(tgid: u32) -> [u32; 2] {
    let first = (tgid % FILTER_SLOTS).wrapping_mul(2);
    [first, first | 1]
}
