//! Whether the daemon could write what it has to, without writing anything.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::check::Check;
use crate::cli::item::HoldLine;

pub(super) fn all(audit_log: &Path, state_dir: &Path) -> Vec<Check> {
    vec![audit(audit_log), state(state_dir), holds(state_dir)]
}

/// Whether it would act if it were told to.
fn holds(state_dir: &Path) -> Check {
    const NAME: &str = "holds";
    let held: Vec<String> = HoldLine::all(state_dir).iter().map(ToString::to_string).collect();
    if held.is_empty() {
        return Check::ok(NAME, "nothing keeps it from acting");
    }
    let remedy = "look into it, then `cgroup-reaper resume`";
    Check::warning(NAME, held.join("; "), remedy)
}

/// The log is made if need be, with all above it.
fn audit(path: &Path) -> Check {
    const NAME: &str = "audit_log";
    let remedy = "name a file that can be written with --audit-log: nothing is reaped without it";
    let answers = path.ancestors().map(|tried| (tried, writable(tried)));
    let (tried, result) = answers
        .into_iter()
        .find(|(_, result)| *result != Err(Errno::NOENT))
        .unwrap_or((path, Err(Errno::NOENT)));
    match result {
        Ok(()) if path.is_dir() => Check::warning(NAME, format!("{} is a directory", path.display()), remedy),
        Ok(()) => Check::ok(NAME, format!("{} can be written", tried.display())),
        Err(errno) => Check::warning(NAME, format!("{}: {errno}", tried.display()), remedy),
    }
}

/// The state directory is made if need be, with all above it.
fn state(path: &Path) -> Check {
    const NAME: &str = "state_dir";
    let remedy = "make it writable or name another with --state-dir: the daemon does not start without it";
    for directory in path.ancestors() {
        match writable(directory) {
            Ok(()) => return Check::ok(NAME, format!("{} can be written", directory.display())),
            Err(Errno::NOENT) => {}
            Err(errno) => return Check::warning(NAME, format!("{}: {errno}", directory.display()), remedy),
        }
    }
    Check::warning(NAME, format!("{}: no part of it exists", path.display()), remedy)
}

/// With the effective ids, as a write would be.
fn writable(path: &Path) -> Result<(), Errno> {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;
    use crate::daemon::clock;
    use crate::daemon::holds::{Hold, Holds};
    use crate::leak::HoldKind;

    #[test]
    fn a_log_may_be_missing_with_its_directory_and_a_file_in_its_place_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(audit(&dir.path().join("audit.jsonl")).state(), State::Ok);
        assert_eq!(audit(&dir.path().join("missing/audit.jsonl")).state(), State::Ok);
        assert_eq!(audit(Path::new("/proc/version/audit.jsonl")).state(), State::Warning);
        assert_eq!(audit(dir.path()).state(), State::Warning);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a check makes nothing");
    }

    #[test]
    fn a_hold_is_shown_with_its_reason_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(holds(dir.path()).state(), State::Ok);
        let hold = Hold::own("101 leaks".to_owned(), clock::wall());
        Holds::new(dir.path()).begin(HoldKind::Storm, &hold).unwrap();
        let check = holds(dir.path());
        assert_eq!(check.state(), State::Warning);
        assert!(check.seen().starts_with("held, storm: 101 leaks (since "), "{check:?}");
    }

    #[test]
    fn a_state_directory_may_be_missing_with_all_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let check = state(&dir.path().join("a/b"));
        assert_eq!(check.state(), State::Ok);
        assert!(check.seen().starts_with(dir.path().to_str().unwrap()), "{check:?}");
        assert_eq!(state(Path::new("/proc/nonexistent/x")).state(), State::Ok, "/proc itself says yes");
        assert_eq!(state(Path::new("/proc/version/x")).state(), State::Warning);
    }
}
