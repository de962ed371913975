//! A thread's rmdir made certain of its target: the kernel refuses it the removal of any other directory.
//!
//! rmdir is by name. Between the look at a name's inode and the removal the name can change hands, and no system call
//! closes the gap; a program on the LSM hook `inode_rmdir` does. It is optional: most kernels are built or booted without
//! LSM programs, and some take the program and never call it, so the list of active modules decides
//! (`/sys/kernel/security/lsm`).

use std::fmt;
use std::sync::{Mutex, PoisonError};

use aya::maps::{HashMap, MapData, MapError};
use aya::programs::{Lsm, ProgramError};
use aya::{Btf, Ebpf};
use reaper_ebpf::abi::name;
use rustix::thread::gettid;

use crate::kernel::{ReadError, read_path};

const ACTIVE: &str = "/sys/kernel/security/lsm";
const ACTIVE_LIMIT: u64 = 4096;

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The probes are of a level without type information.
    #[error("the probes have no type information")]
    NoTypes,
    /// Which security modules are active is not known.
    #[error("see which security modules are active")]
    Unknown(#[source] ReadError),
    /// The kernel calls no LSM programs.
    #[error("bpf is not among the active security modules: {0}")]
    Inactive(String),
    /// The program was not accepted.
    #[error("load and attach the guard on rmdir")]
    Refused(#[source] Box<ProgramError>),
    /// The object lacks the program or its map.
    #[error("the object has no guard on rmdir")]
    Missing,
    /// Its map could not be changed.
    #[error("tell the guard on rmdir what may go")]
    Map(#[source] MapError),
}

/// The attached guard. It stays as long as the [`Probe`](super::Probe) that it came with.
pub struct Guard {
    armed: Mutex<HashMap<MapData, u64, u64>>,
}

// === impl Guard ===

impl Guard {
    /// Does something while the calling thread can remove only the directory with this inode number.
    pub fn only<T>(&self, inode: u64, removal: impl FnOnce() -> T) -> Result<T, GuardError> {
        let thread = (u64::from(std::process::id()) << 32) | u64::from(gettid().as_raw_pid().unsigned_abs());
        self.map(|armed| armed.insert(thread, inode, 0))?;
        let done = removal();
        self.map(|armed| armed.remove(&thread))?;
        Ok(done)
    }

    fn map(
        &self,
        change: impl FnOnce(&mut HashMap<MapData, u64, u64>) -> Result<(), MapError>,
    ) -> Result<(), GuardError> {
        change(&mut self.armed.lock().unwrap_or_else(PoisonError::into_inner)).map_err(GuardError::Map)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// Attaches the guard, where the kernel would call it.
pub(super) fn attach(programs: &mut Ebpf, types: &Btf) -> Result<Guard, GuardError> {
    let active = read_path(ACTIVE, ACTIVE_LIMIT).map_err(GuardError::Unknown)?;
    let active = String::from_utf8_lossy(&active);
    if !calls_programs(&active) {
        return Err(GuardError::Inactive(active.trim().to_owned()));
    }
    let refused = |source| GuardError::Refused(Box::new(source));
    let program = programs.program_mut(name::RMDIR_GUARD).ok_or(GuardError::Missing)?;
    let program = <&mut Lsm>::try_from(program).map_err(refused)?;
    program.load(name::RMDIR_GUARD, types).map_err(refused)?;
    program.attach().map_err(refused)?;
    let armed = programs.take_map(name::ARMED).ok_or(GuardError::Missing)?;
    Ok(Guard { armed: Mutex::new(HashMap::try_from(armed).map_err(GuardError::Map)?) })
}

/// Names with commas between them, in the order in which they are asked (`security/security.c`).
fn calls_programs(active: &str) -> bool {
    active.trim().split(',').any(|module| module == "bpf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_counts_by_its_whole_name() {
        assert!(calls_programs("capability,lockdown,yama,bpf\n"));
        assert!(!calls_programs("capability,lockdown,bpffs"));
        assert!(!calls_programs(""));
    }
}
