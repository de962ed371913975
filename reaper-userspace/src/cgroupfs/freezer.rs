//! State of the freezer, v1 and v2.

use super::dir::CgroupDir;
use super::error::CgroupfsError;
use crate::fact::{Controllers, Freeze};

// === impl CgroupDir ===

impl CgroupDir {
    /// v1 (`legacy_freezer.c`): `freezer.state` is the effective state, an ancestor's freeze included. v2
    /// (`freezer.c`): `frozen` in `cgroup.events` is the effective state, `cgroup.freeze` only the request made
    /// here; so a cgroup that an ancestor is freezing shows as thawed until its last task has stopped.
    pub(super) fn freeze(&self) -> Result<Freeze, CgroupfsError> {
        let state = match self.controllers() {
            Controllers::Other => Ok(Freeze::None),
            Controllers::Freezer => self.freezer_state(),
            Controllers::Unified => self.cgroup_freeze(),
        };
        match state {
            // The root cannot be frozen and has none of the files.
            Err(error) if error.is_unsupported() => Ok(Freeze::None),
            state => state,
        }
    }

    pub(super) fn is_freeze_requested(&self) -> Result<bool, CgroupfsError> {
        let requested = match self.controllers() {
            Controllers::Other => Ok(false),
            Controllers::Freezer => self.flag("freezer.self_freezing"),
            Controllers::Unified => self.flag("cgroup.freeze"),
        };
        match requested {
            Err(error) if error.is_unsupported() => Ok(false),
            requested => requested,
        }
    }

    pub(super) fn held_by_ancestor(&self) -> Result<bool, CgroupfsError> {
        let held = match self.controllers() {
            Controllers::Other => Ok(false),
            Controllers::Freezer => self.flag("freezer.parent_freezing"),
            Controllers::Unified => self
                .events()
                .and_then(|events| Ok(events.frozen == Some(true) && !self.flag("cgroup.freeze")?)),
        };
        match held {
            Err(error) if error.is_unsupported() => Ok(false),
            held => held,
        }
    }

    fn freezer_state(&self) -> Result<Freeze, CgroupfsError> {
        let text = self.read("freezer.state")?;
        match text.trim_ascii() {
            b"THAWED" => Ok(Freeze::Thawed),
            b"FREEZING" => Ok(Freeze::Freezing),
            b"FROZEN" => Ok(Freeze::Frozen),
            _ => Err(self.content("freezer.state", &text)),
        }
    }

    fn cgroup_freeze(&self) -> Result<Freeze, CgroupfsError> {
        Ok(match self.events()?.frozen {
            None => Freeze::None,
            Some(true) => Freeze::Frozen,
            Some(false) if self.flag("cgroup.freeze")? => Freeze::Freezing,
            Some(false) => Freeze::Thawed,
        })
    }
}
