//! The table of Unix sockets, `/proc/PID/net/unix`: which are bound to which path, and which listen.
//!
//! One network namespace a table. Connected pairs are not in it: a row has the inode of one end only.
//!
//! # Invariants
//! - A table that is too long to be read whole is no table: what is missing could be the row that matters.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::about;
use crate::ident::Lookup;

/// A table of more than 100,000 sockets.
const LIMIT: u64 = 32 << 20;

/// One socket that is bound to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundSocket {
    /// Inode of the socket, as in `/proc/PID/fd`; not that of its file.
    pub inode: u64,
    /// Whether it accepts connections.
    pub listening: bool,
    /// The path that `bind` was given.
    pub path: PathBuf,
}

/// All sockets of a table that are bound to an absolute path, in its order. Never `NotFound`.
pub fn bound(table: &Path) -> Lookup<Vec<BoundSocket>> {
    match read(table) {
        Ok(content) => Lookup::Found(parse(&content).collect()),
        Err(error) => Lookup::Unavailable(about(table, &error)),
    }
}

fn read(table: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(table)?.take(LIMIT).read_to_end(&mut content)?;
    match u64::try_from(content.len()) {
        Ok(length) if length < LIMIT => Ok(content),
        Ok(_) | Err(_) => Err(std::io::ErrorKind::FileTooLarge.into()),
    }
}

/// A row of `net/unix/af_unix.c:unix_seq_show` is `Num: RefCount Protocol Flags Type St Inode Path`.
pub(super) fn parse(table: &[u8]) -> impl Iterator<Item = BoundSocket> + '_ {
    table.split(|byte| *byte == b'\n').filter_map(|row| {
        // The inode is padded on the left, so that an empty field may stand before it.
        let mut fields = row.splitn(7, |byte| *byte == b' ');
        let (flags, rest) = (fields.nth(3)?, fields.nth(2)?);
        let rest = rest.trim_ascii_start();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (inode, path) = rest.split_at_checked(digits)?;
        let path = path.trim_ascii_start();
        path.starts_with(b"/").then_some(())?;
        let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
        Some(BoundSocket { inode, listening: accepts(flags), path: OsStr::from_bytes(path).into() })
    })
}

/// Whether `__SO_ACCEPTCON` (bit 16) is set.
fn accepts(flags: &[u8]) -> bool {
    const SO_ACCEPTCON: u32 = 1 << 16;
    let text = String::from_utf8_lossy(flags);
    u32::from_str_radix(&text, 16).is_ok_and(|flags| flags & SO_ACCEPTCON != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn rows_tell_inode_path_and_whether_they_listen() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b.sock\n\
             0000000000000000: 00000003 00000000 00000000 0001 03    77 /run/c.sock\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 99\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 4 @abstract\n\
             torn row";
        let socket = |inode, listening, path: &str| BoundSocket { inode, listening, path: path.into() };
        let found: Vec<_> = parse(table.as_bytes()).collect();
        assert_eq!(found, [socket(12_345, true, "/run/a b.sock"), socket(77, false, "/run/c.sock")]);
    }

    #[test]
    fn a_real_listener_is_in_the_table_and_no_table_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let found = bound(Path::new("/proc/self/net/unix"));
        let mut ours = found.found().unwrap().iter().filter(|socket| socket.path == path);
        assert!(ours.next().is_some_and(|socket| socket.listening));
        assert!(bound(&dir.path().join("none")).unavailable().is_some());
    }
}
