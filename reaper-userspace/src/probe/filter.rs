//! The user's side of `FILTER`, which says that a number is surely not watched.

use std::collections::BTreeSet;

use aya::maps::{Array, HashMap, MapData, MapError};
use reaper_ebpf::abi::{FILTER_MARK, FILTER_SLOTS, WatchEntry, filter_elements};

pub(super) struct Filter(Array<MapData, u64>);

// === impl Filter ===

impl Filter {
    pub(super) const fn new(marks: Array<MapData, u64>) -> Self {
        Self(marks)
    }

    /// Says that this number may be watched; before it is.
    pub(super) fn mark(&mut self, tgid: u32) -> Result<(), MapError> {
        filter_elements(tgid).into_iter().try_for_each(|element| self.0.set(element, FILTER_MARK, 0))
    }

    /// Clears one half, reads what is watched, marks that; then the other half. The programs enter a number before
    /// they mark it: either it is read here, or its mark comes after the clearing. The half that is not being cleared
    /// answers meanwhile, also after a failure.
    pub(super) fn rebuild(&mut self, watch: &HashMap<MapData, u32, WatchEntry>) -> Result<(), MapError> {
        for half in [0, 1] {
            for slot in 0..FILTER_SLOTS {
                self.set(slot, half, 0)?;
            }
            let watched: BTreeSet<u32> = watch
                .keys()
                .map(|tgid| tgid.map(|tgid| tgid % FILTER_SLOTS))
                .collect::<Result<_, MapError>>()?;
            for slot in watched {
                self.set(slot, half, FILTER_MARK)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, slot: u32, half: usize, mark: u64) -> Result<(), MapError> {
        let element = filter_elements(slot).get(half).copied().unwrap_or_default();
        self.0.set(element, mark, 0)
    }
}
