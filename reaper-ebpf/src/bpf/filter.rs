//! What is worth a record: tracked cgroups, watched processes, names of runtimes.
#![expect(unsafe_code, reason = "a map's value is reached by reference while others may change it")]

use reaper_ebpf::abi::{CgroupKey, Comm, Counter, FILTER_MARK, TRACKED_MARK, WatchEntry, filter_elements};

use crate::emit;
use crate::maps::{FILTER, TRACKED, WATCH};

const NANOS_PER_TICK: u64 = 10_000_000;

/// Whether this cgroup's events are reported.
#[inline(always)]
pub(crate) fn is_tracked(key: &CgroupKey) -> bool {
    TRACKED.get_ptr(key).is_some()
}

/// Reports this cgroup's events from now on.
#[inline(always)]
pub(crate) fn track(key: &CgroupKey) {
    if TRACKED.insert(key, TRACKED_MARK, 0).is_err() {
        emit::lost(Counter::TRACKED_FULL);
    }
}

/// Forgets this cgroup; true if it was tracked.
#[inline(always)]
pub(crate) fn untrack(key: &CgroupKey) -> bool {
    TRACKED.remove(key).is_ok()
}

/// Why this incarnation is watched. A reused number has another start and is a stranger. The start is read only
/// where the number is known, which nearly always it is not.
#[inline(always)]
pub(crate) fn watched(tgid: u32, start: impl FnOnce() -> u64) -> Option<u64> {
    if surely_not(tgid) {
        return None;
    }
    // SAFETY: the entry may be replaced meanwhile, by the entry of another process: both words are then read
    // from different entries at worst, which the comparison of starts makes a miss or the right answer.
    let [since, reason] = *unsafe { WATCH.get(tgid) }?;
    (since / NANOS_PER_TICK == start() / NANOS_PER_TICK).then_some(reason)
}

/// Why the process of this number is watched, for programs that cannot tell its incarnations apart: see [`forget`].
#[inline(always)]
pub(crate) fn watched_number(tgid: u32) -> Option<u64> {
    if surely_not(tgid) {
        return None;
    }
    // SAFETY: as in `watched`; one word is used.
    let [_, reason] = *unsafe { WATCH.get(tgid) }?;
    Some(reason)
}

/// A number was given out anew: whoever had it before is gone, whether its end was seen or not.
#[inline(always)]
pub(crate) fn forget(tgid: u32) {
    if !surely_not(tgid) {
        unwatch(tgid);
    }
}

/// Reports this process's life from now on. First the entry, then the filter: user space clears the filter before it
/// reads the entries, so it finds this one or its mark is the later. Nothing asks meanwhile: the process is new or the
/// one that runs.
#[inline(always)]
pub(crate) fn watch(tgid: u32, start: u64, reason: u64) {
    let entry: WatchEntry = [start, reason];
    if WATCH.insert(tgid, entry, 0).is_err() {
        emit::lost(Counter::WATCH_FULL);
        return;
    }
    let [first, second] = filter_elements(tgid);
    mark(first);
    mark(second);
}

/// Forgets this process; true for exactly one of its threads that end together.
#[inline(always)]
pub(crate) fn unwatch(tgid: u32) -> bool {
    WATCH.remove(tgid).is_ok()
}

#[inline(always)]
fn surely_not(tgid: u32) -> bool {
    let [first, second] = filter_elements(tgid);
    is_empty(first) && is_empty(second)
}

#[inline(always)]
fn is_empty(element: u32) -> bool {
    FILTER.get(element).is_some_and(|mark| *mark == 0)
}

#[inline(always)]
fn mark(element: u32) {
    if let Some(mark) = FILTER.get_ptr_mut(element) {
        // SAFETY: the map returned the address of an aligned u64 that lives as long as the program; all programs write
        // the same.
        unsafe { mark.write(FILTER_MARK) };
    }
}

/// Whether a comm is one that shims and runtimes have. Anyone can choose it: a hint that costs a record.
#[inline(always)]
pub(crate) fn is_runtime([low, high]: Comm) -> bool {
    let comm = u128::from(high) << 64 | u128::from(low);
    SHIM.matches(comm) || RUNC.matches(comm) || CRUN.matches(comm) || YOUKI.matches(comm)
}

const SHIM: Prefix = Prefix::new(b"containerd-shim");
const RUNC: Prefix = Prefix::new(b"runc");
const CRUN: Prefix = Prefix::new(b"crun");
const YOUKI: Prefix = Prefix::new(b"youki");

/// The beginning of a comm, compared as one number: no loop, no call of `memcmp`.
struct Prefix {
    value: u128,
    mask: u128,
}

// === impl Prefix ===

impl Prefix {
    const fn new(text: &[u8]) -> Self {
        let mut value = 0;
        let mut mask = 0;
        let mut i = 0;
        while i < text.len() {
            value |= (text[i] as u128) << (8 * i);
            mask |= 0xff << (8 * i);
            i += 1;
        }
        Self { value, mask }
    }

    #[inline(always)]
    const fn matches(&self, comm: u128) -> bool {
        comm & self.mask == self.value
    }
}
