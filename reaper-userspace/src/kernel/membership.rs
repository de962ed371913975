//! `/proc/PID/cgroup`: one line a hierarchy, `NUMBER:CONTROLLERS:PATH`.
//!
//! `kernel/cgroup/cgroup.c:proc_cgroup_show`: v2 is `0::PATH`; a path seen from inside a cgroup namespace may
//! begin with `/..`; ` (deleted)` is appended for a task whose v2 cgroup is gone. No path holds a newline
//! (`cgroup_mkdir` refuses it), any path may hold colons.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::ident::Hierarchy;

/// One line: where a task is in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Which hierarchy; 0 is v2.
    pub hierarchy: Hierarchy,
    /// `freezer`, `cpu,cpuacct`, `name=systemd`; empty for v2.
    pub controllers: String,
    /// As read: it may begin with `/..` and end with ` (deleted)`.
    pub path: PathBuf,
}

/// A line that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of /proc/PID/cgroup: {0:?}")]
pub struct MembershipError(String);

/// Parses the whole file; one bad line spoils it.
pub fn parse_memberships(text: &[u8]) -> Result<Vec<Membership>, MembershipError> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Result<Membership, MembershipError> {
    let bad = || MembershipError(String::from_utf8_lossy(line).into_owned());
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let mut field = || fields.next().ok_or_else(bad);
    let (number, controllers, path) = (field()?, field()?, field()?);
    let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).ok_or_else(bad)?;
    let controllers = std::str::from_utf8(controllers).ok().ok_or_else(bad)?.to_owned();
    // v2 has no controllers here and v1 always has some: anything else was not written by a kernel we know.
    if !path.starts_with(b"/") || controllers.is_empty() != (number == 0) {
        return Err(bad());
    }
    Ok(Membership { hierarchy: Hierarchy(number), controllers, path: PathBuf::from(OsStr::from_bytes(path)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn v1_named_and_unified_lines_are_read() {
        let lines = parse_memberships(b"9:name=systemd:/a:b\n1:cpu,cpuacct:/\n0::/x (deleted)\n").unwrap();
        let read: Vec<_> =
            lines.iter().map(|l| (l.hierarchy.0, l.controllers.as_str(), l.path.to_str().unwrap())).collect();
        assert_eq!(read, [(9, "name=systemd", "/a:b"), (1, "cpu,cpuacct", "/"), (0, "", "/x (deleted)")]);
    }

    #[test]
    fn lines_that_no_kernel_writes_are_refused() {
        for bad in ["1:cpu", "x:cpu:/", "0:cpu:/", "1::/", "1:cpu:relative", "-1:cpu:/", "::/"] {
            assert!(parse_memberships(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(number in 1u32..99, names in "[a-z_,=]{1,20}", path in "/[^\n\0]{0,40}") {
            let text = format!("{number}:{names}:{path}\n");
            let expected = Membership {
                hierarchy: Hierarchy(number), controllers: names, path: PathBuf::from(path),
            };
            prop_assert_eq!(parse_memberships(text.as_bytes()), Ok(vec![expected]));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _read = parse_memberships(&bytes);
        }
    }
}
