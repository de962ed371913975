//! The guard on rmdir, where the kernel calls LSM programs; a clear reason elsewhere.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use reaper_userspace::kernel::chain;
use reaper_userspace::probe::GuardError;

use crate::bench::{Cgroup, Hier, attached};

fn is_called() -> bool {
    let active = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    active.trim().split(',').any(|module| module == "bpf")
}

fn refused(result: &io::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[tokio::test]
async fn a_thread_that_names_its_target_can_remove_nothing_else() {
    let mut probe = attached();
    let guard = match probe.take_guard() {
        Ok(guard) => guard,
        // The list of modules does not tell whether the machine allows trampolines; EPERM does.
        Err(GuardError::Refused(error)) if chain(&error).contains("Operation not permitted") => {
            return println!("refused here: {}", chain(&error));
        }
        Err(error) => {
            assert!(!is_called(), "{}", chain(&error));
            return println!("not here: {}", chain(&error));
        }
    };
    assert!(is_called());
    let hierarchy = Hier::v2();
    let (meant, other) = (Cgroup::make(&hierarchy, "meant"), Cgroup::make(&hierarchy, "other"));
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let id = inode(meant.path());
    assert!(refused(&guard.only(id, || fs::remove_dir(other.path())).unwrap()));
    assert!(other.path().is_dir());
    // Another thread said nothing, and neither has this one any more.
    let elsewhere = other.path().to_owned();
    guard
        .only(id, || std::thread::spawn(move || fs::remove_dir(elsewhere)).join().unwrap())
        .unwrap()
        .unwrap();
    guard.only(id, || fs::remove_dir(meant.path())).unwrap().unwrap();
    let last = Cgroup::make(&hierarchy, "last");
    fs::remove_dir(last.path()).unwrap();
    // The window itself: the name is another cgroup's between look and removal.
    let first = Cgroup::make(&hierarchy, "name");
    let id = inode(first.path());
    fs::remove_dir(first.path()).unwrap();
    fs::create_dir(first.path()).unwrap();
    assert!(refused(&guard.only(id, || fs::remove_dir(first.path())).unwrap()));
}
