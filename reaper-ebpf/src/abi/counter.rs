//! Slots of the per-CPU array `LOST`.

use super::Kind;

/// Number of slots.
pub const COUNTERS: u32 = 11;

/// A slot: losses of a kind of record are counted under the kind's own number, slot 0 stays empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(pub u32);

// === impl Counter ===

impl Counter {
    /// A cgroup was not tracked because `TRACKED` was full.
    pub const TRACKED_FULL: Self = Self(8);
    /// A process was not watched because `WATCH` was full.
    pub const WATCH_FULL: Self = Self(9);

    /// Records of this kind that found no room in their ring.
    pub const fn of(kind: Kind) -> Self {
        #[expect(clippy::as_conversions, reason = "widening, in a const fn")]
        Self(kind.0 as u32)
    }
}

const _: () = {
    assert!(Counter::of(Kind::EXIT).0 < Counter::TRACKED_FULL.0, "kinds and causes share the array");
    assert!(Counter::of(Kind::KILL).0 > Counter::WATCH_FULL.0, "not a cause");
    assert!(Counter::of(Kind::KILL).0 < COUNTERS, "within the array");
};
