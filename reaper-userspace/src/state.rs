//! The few small files of the state directory: made as a whole, replaced as a whole.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fsync, openat, renameat};

/// With mode 0750 if it is missing, with all above it.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)
}

/// Writes a file that is either the old or the new one, also after a power cut. Two that do it at once do not meet
/// half-way: each has a new file of its own.
pub fn replace(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let new = directory.join(format!("{name}.{}.new", std::process::id()));
    let file = openat(CWD, &new, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = std::fs::File::from(file);
    io::Write::write_all(&mut file, content)?;
    fsync(&file)?;
    renameat(CWD, &new, CWD, directory.join(name))?;
    fsync(std::fs::File::open(directory)?)?;
    Ok(())
}

/// Removes one of them.
#[expect(clippy::disallowed_methods, reason = "a file of our own in our own state directory")]
pub fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path)
}
