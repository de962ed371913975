//! Opens a file to append to, and makes its end sound first.
//!
//! # Kernel facts
//! A crash can leave a line without its end, and on some file systems zero bytes in place of data whose size was
//! already recorded. Both are moved to `FILE.torn`; a line that is whole but wrong is not: that is no crash.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::chain::{Digest, MAX_LINE};
use super::error::AuditError;
use super::walk::{self, Bad, Fault, Head, OpenIntent, Walk};

/// A file that can be appended to, locked.
pub(super) struct Sound {
    pub(super) file: File,
    /// The line that the next one follows.
    pub(super) head: Head,
    /// The file has no line yet.
    pub(super) empty: bool,
    pub(super) open: Vec<OpenIntent>,
}

/// Takes the lock, and waits an instant for it: whoever looks into `/proc/PID/fd` of a writer that has just closed its
/// file keeps it open, lock and all, for that long (`fs/proc/fd.c`).
#[expect(
    clippy::disallowed_methods,
    reason = "a lock that is let go has no notification; ten times ten milliseconds"
)]
fn lock(file: &File, path: &Path) -> Result<(), AuditError> {
    const TRIES: u32 = 10;
    const WAIT: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(WAIT),
            Err(TryLockError::Error(source)) => {
                return Err(AuditError::Lock { path: path.to_owned(), source });
            }
        }
    }
    Err(AuditError::InUse { path: path.to_owned() })
}

/// Opens, locks, reads and, where needed, repairs.
pub(super) fn open(path: &Path) -> Result<Sound, AuditError> {
    let file = open_append(path)?;
    lock(&file, path)?;
    let walk = read(&file, path)?;
    if let Some(bad) = &walk.bad {
        move_aside(&file, path, &walk, bad)?;
    }
    if let Some(head) = walk.head {
        return Ok(Sound { file, head, empty: false, open: walk.open.into_values().collect() });
    }
    sync_directory(path)?;
    let (head, open) = earlier(path)?;
    Ok(Sound { file, head, empty: true, open })
}

/// `O_NONBLOCK` changes nothing for a regular file and keeps a FIFO from holding us up.
fn open_append(path: &Path) -> Result<File, AuditError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| AuditError::Open { path: path.to_owned(), source })?;
    check_regular(&file, path)?;
    Ok(file)
}

fn check_regular(file: &File, path: &Path) -> Result<(), AuditError> {
    let metadata = file.metadata().map_err(|source| AuditError::Open { path: path.to_owned(), source })?;
    if metadata.is_file() { Ok(()) } else { Err(AuditError::NotRegular { path: path.to_owned() }) }
}

fn read(file: &File, path: &Path) -> Result<Walk, AuditError> {
    reopen(file)
        .and_then(|file| walk::walk(BufReader::new(file)))
        .map_err(|source| AuditError::Read { path: path.to_owned(), source })
}

/// The same file for reading, whatever its name leads to by now.
fn reopen(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn move_aside(file: &File, path: &Path, walk: &Walk, bad: &Bad) -> Result<(), AuditError> {
    let torn = bad.last && matches!(bad.fault, Fault::Unterminated | Fault::NotJson);
    if !torn {
        let line = walk.lines.saturating_add(1);
        return Err(AuditError::Broken { path: path.to_owned(), line, source: bad.fault.clone() });
    }
    let mut aside = open_append(&beside(path, ".torn"))?;
    copy_tail(file, walk.len, &mut aside)
        // Only a tail that is safe elsewhere is cut off here.
        .and_then(|()| sync_directory_of(path))
        .and_then(|()| file.set_len(walk.len))
        .and_then(|()| file.sync_all())
        .map_err(|source| AuditError::MoveAside { path: path.to_owned(), source })
}

fn copy_tail(file: &File, from: u64, aside: &mut File) -> io::Result<()> {
    let mut source = reopen(file)?;
    source.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    source.take(u64::try_from(MAX_LINE).unwrap_or(u64::MAX)).read_to_end(&mut tail)?;
    if tail.last() != Some(&b'\n') {
        tail.push(b'\n');
    }
    aside.write_all(&tail)?;
    aside.sync_all()
}

/// Where the chain of a new file goes on from: `FILE.1`, the name that a rotation gives, or the beginning.
fn earlier(path: &Path) -> Result<(Head, Vec<OpenIntent>), AuditError> {
    let path = beside(path, ".1");
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let walk = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&path) {
        Ok(file) => {
            check_regular(&file, &path)?;
            read(&file, &path)?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Walk::default(),
        Err(source) => return Err(AuditError::Open { path, source }),
    };
    let head = walk.head.unwrap_or(Head { seq: 0, hash: Digest::GENESIS });
    Ok((head, walk.open.into_values().collect()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn sync_directory(path: &Path) -> Result<(), AuditError> {
    sync_directory_of(path).map_err(|source| AuditError::Sync { path: path.to_owned(), source })
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}
