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

/// The key of a cgroup.
pub const fn cgroup_key(hierarchy: u32, id: u64) -> CgroupKey {
    // `u64::from` is not const.
    #[expect(clippy::as_conversions, reason = "widening, in a const fn")]
    [hierarchy as u64, id]
}
