//! Who runs this command, for records.

use crate::audit::Person;
use crate::kernel::read_path;

/// The audit system's word for "nobody has logged in".
const UNSET: u32 = u32::MAX;

/// The real user, and the one who logged in, whom `sudo` and `su` do not change (`/proc/self/loginuid`).
pub fn person() -> Person {
    const LIMIT: u64 = 64;
    let told = read_path("/proc/self/loginuid", LIMIT).ok();
    let loginuid = told.and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
    Person { uid: rustix::process::getuid().as_raw(), loginuid: loginuid.filter(|uid| *uid != UNSET) }
}
