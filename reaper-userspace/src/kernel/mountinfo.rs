//! `/proc/PID/mountinfo`, one mount a line.
//!
//! `fs/proc_namespace.c:show_mountinfo`: `ID PARENT MAJOR:MINOR ROOT TARGET OPTIONS [OPTIONAL..] - TYPE SOURCE
//! SUPER_OPTIONS`; space, tab, newline and backslash in paths are written as three octal digits. A target whose
//! directory is gone ends with `//deleted`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Its id, unique in the namespace while it is mounted, reused afterwards.
    pub mount_id: u32,
    /// `st_dev` of its files, as major and minor.
    pub device: (u32, u32),
    /// Which directory of the filesystem is mounted.
    pub root: PathBuf,
    /// Where, as seen from the root directory of the process that the file belongs to.
    pub target: PathBuf,
    /// Filesystem type: `cgroup2`, `overlay`.
    pub fs_type: String,
    /// Options of the superblock; for a v1 hierarchy its controllers and name.
    pub super_options: String,
}

/// A line that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of mountinfo: {0:?}")]
pub struct MountinfoError(String);

/// Parses the whole file; one bad line spoils it.
pub fn parse_mountinfo(text: &[u8]) -> Result<Vec<MountEntry>, MountinfoError> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line).ok_or_else(|| MountinfoError(String::from_utf8_lossy(line).into_owned()))
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mount_id = number(fields.next()?)?;
    let _parent: u32 = number(fields.next()?)?;
    let mut device = fields.next()?.splitn(2, |byte| *byte == b':');
    let device = (number(device.next()?)?, number(device.next()?)?);
    let root = path(fields.next()?)?;
    let target = path(fields.next()?)?;
    // Options of the mount, then any number of optional fields up to the lone dash.
    fields.next()?;
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let _source = fields.next()?;
    let super_options = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(MountEntry { mount_id, device, root, target, fs_type, super_options })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn path(field: &[u8]) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'\\' {
            let (digits, tail) = tail.split_at_checked(3)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    (!bytes.is_empty()).then(|| PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write as _;

    #[test]
    fn a_v1_hierarchy_with_optional_fields_is_read() {
        let line = b"40 31 0:37 /.. /sys/fs/cgroup/systemd rw,relatime shared:9 master:1 - cgroup  rw,xattr,name=systemd\n";
        let read = parse_mountinfo(line).unwrap();
        assert_eq!(
            read,
            [MountEntry {
                mount_id: 40,
                device: (0, 37),
                root: PathBuf::from("/.."),
                target: PathBuf::from("/sys/fs/cgroup/systemd"),
                fs_type: "cgroup".to_owned(),
                super_options: "rw,xattr,name=systemd".to_owned(),
            }]
        );
    }

    #[test]
    fn broken_lines_are_refused() {
        for bad in [
            "1 2 0:1 / /a rw shared:1 cgroup2 c rw",
            "x 2 0:1 / /a rw - t s o",
            "1 2 01 / /a rw - t s o",
            "1 2 0:1 / /a\\04 rw - t s o",
            "1 2 0:1 / /a\\999 rw - t s o",
            "1 2 0:1 / /a rw - t s",
            "\u{e9}",
        ] {
            assert!(parse_mountinfo(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_target_is_read_back(name in proptest::collection::vec(1u8..=255, 1..40)) {
            let mut escaped = String::new();
            let mut line = b"1 2 0:1 / /".to_vec();
            for byte in &name {
                if matches!(byte, b' ' | b'\t' | b'\n' | b'\\') {
                    escaped.clear();
                    write!(escaped, "\\{byte:03o}").unwrap();
                    line.extend_from_slice(escaped.as_bytes());
                } else {
                    line.push(*byte);
                }
            }
            line.extend_from_slice(b" rw - overlay overlay rw\n");
            let mut expected = b"/".to_vec();
            expected.extend_from_slice(&name);
            let read = parse_mountinfo(&line).unwrap();
            prop_assert_eq!(read[0].target.clone().into_os_string().into_vec(), expected);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _read = parse_mountinfo(&bytes);
        }
    }
}
