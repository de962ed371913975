//! Records, map keys, loss counters and names.
//!
//! # Invariants
//! - Every layout is `repr(C)` or an array of integers, without padding, little endian.
//! - A change of any layout or meaning raises [`VERSION`].

mod counter;
mod field;
mod key;
pub mod name;
mod record;

pub use counter::{COUNTERS, Counter};
pub use field::GROUP_DEAD;
pub use key::{
    CgroupKey, FILTER_LEN, FILTER_MARK, FILTER_SLOTS, START_UNKNOWN, TRACKED_MARK, WATCH_ROOT, WATCH_RUNTIME,
    WatchEntry, cgroup_key, filter_elements,
};
pub use record::{BY_NUMBER, Comm, Kind, Record, VERSION, version_of};

#[cfg(target_endian = "big")]
compile_error!("the wire format is little endian");
