//! Who uses files below a directory.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};

use super::namespace::process_dir;
use crate::fact::ProcessFact;
use crate::ident::ProcessKey;

/// Processes whose root or working directory or an open file is at or below a directory, by the names that our own mount
/// namespace gives to them: a hint for people, never a proof. What cannot be read is left out.
pub fn users(prefix: &Path, processes: &[ProcessFact]) -> Vec<ProcessKey> {
    let candidates = processes.iter().filter(|process| !process.kernel_thread).map(|process| process.key);
    candidates.filter(|process| uses(*process, prefix)).collect()
}

fn uses(process: ProcessKey, prefix: &Path) -> bool {
    let Ok(dir) = process_dir(process) else { return false };
    leads_below(&dir, "cwd", prefix) || leads_below(&dir, "root", prefix) || has_open(&dir, prefix)
}

fn leads_below(dir: impl AsFd, link: &str, prefix: &Path) -> bool {
    let target = readlinkat(dir, link, Vec::new());
    target.is_ok_and(|target| Path::new(std::ffi::OsStr::from_bytes(target.as_bytes())).starts_with(prefix))
}

fn has_open(dir: &OwnedFd, prefix: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(list) = openat(dir, "fd", flags, Mode::empty()) else { return false };
    let Ok(entries) = Dir::read_from(&list) else { return false };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(ToOwned::to_owned));
    names.into_iter().any(|name| leads_below(&list, &name, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::sample;
    use crate::ident::{StartTicks, Tgid};

    #[test]
    fn an_open_file_makes_a_process_a_user() {
        let dir = tempfile::tempdir().unwrap();
        let tgid = Tgid::new(i64::from(std::process::id())).unwrap();
        let key = ProcessKey { tgid, start: StartTicks::from_ticks(0) };
        let own = [ProcessFact { key, ..sample::init() }];
        assert!(users(dir.path(), &own).is_empty());
        let file = std::fs::File::create(dir.path().join("open")).unwrap();
        assert_eq!(users(dir.path(), &own), [key]);
        drop(file);
        assert!(users(dir.path(), &own).is_empty());
    }
}
