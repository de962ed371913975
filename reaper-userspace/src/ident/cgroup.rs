//! Cgroups by id within a hierarchy, and their paths.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use super::exact;

/// The id of a cgroup: the kernel's `kn->id`, equal to the inode number of its directory on 64-bit machines.
///
/// Unique for a boot within one hierarchy (`fs/kernfs/dir.c:__kernfs_new_node` bumps the high half on wrap);
/// ids of different hierarchies collide, so the key is [`CgroupRef`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CgroupId(pub u64);

/// A mounted hierarchy, by the number in the first column of `/proc/PID/cgroup`; 0 is cgroup v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hierarchy(pub u32);

/// Exactly one cgroup of this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CgroupRef {
    /// The hierarchy it lives in.
    pub hierarchy: Hierarchy,
    /// Its id there.
    pub id: CgroupId,
}

/// A cgroup's path below the root of its hierarchy: absolute, lexically clean, never the way out.
///
/// A path names a place, not a cgroup: after rmdir and mkdir another cgroup has the same path.
/// In JSON it is spelt as [`exact`] has it, so that a name that is no UTF-8 comes back as the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "exact::Exact")]
pub struct CgroupPath(PathBuf);

/// Why a path is not accepted as a cgroup path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CgroupPathError {
    /// Relative paths depend on a runtime's own cgroup and cannot be resolved from outside.
    #[error("cgroup path {0:?} is not absolute")]
    Relative(PathBuf),
    /// `..` could leave the hierarchy.
    #[error("cgroup path {0:?} has a parent component")]
    Parent(PathBuf),
    /// The kernel limits a path to `PATH_MAX` and a name to `NAME_MAX`.
    #[error("cgroup path of {0} bytes is longer than the kernel takes")]
    TooLong(usize),
    /// `cgroup_mkdir` refuses a newline in a name, and no name holds a NUL.
    #[error("cgroup path {0:?} holds a byte that no cgroup name can have")]
    Byte(PathBuf),
}

// === impl Hierarchy ===

impl Hierarchy {
    /// The cgroup v2 hierarchy.
    pub const UNIFIED: Self = Self(0);
}

// === impl CgroupPath ===

impl CgroupPath {
    /// The hierarchy's root.
    pub fn root() -> Self {
        Self(PathBuf::from("/"))
    }

    /// True for the hierarchy's root.
    pub fn is_root(&self) -> bool {
        self.depth() == 0
    }

    /// Number of components below the root.
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The components below the root, outermost first.
    pub fn components(&self) -> impl Iterator<Item = &OsStr> {
        self.0.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            Component::RootDir | Component::CurDir | Component::ParentDir | Component::Prefix(_) => None,
        })
    }

    /// The last component; `None` for the root.
    pub fn name(&self) -> Option<&OsStr> {
        self.0.file_name()
    }

    /// The enclosing cgroup; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        self.0.parent().map(|parent| Self(parent.to_owned()))
    }

    /// The child with this name, which must be a single component as read from a directory.
    pub fn child(&self, name: &OsStr) -> Result<Self, CgroupPathError> {
        Self::try_from(self.0.join(name))
    }

    /// True for the cgroup itself and everything below it.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The path relative to the root, for `openat`; `.` for the root itself.
    pub fn relative(&self) -> &Path {
        match self.0.strip_prefix("/") {
            Ok(relative) if !relative.as_os_str().is_empty() => relative,
            _ => Path::new("."),
        }
    }

    /// The path from the hierarchy's root.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl TryFrom<PathBuf> for CgroupPath {
    type Error = CgroupPathError;

    fn try_from(path: PathBuf) -> Result<Self, CgroupPathError> {
        const PATH_MAX: usize = 4096;
        const NAME_MAX: usize = 255;
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= PATH_MAX {
            return Err(CgroupPathError::TooLong(bytes.len()));
        }
        if bytes.iter().any(|byte| matches!(byte, 0 | b'\n')) {
            return Err(CgroupPathError::Byte(path));
        }
        if !path.is_absolute() {
            return Err(CgroupPathError::Relative(path));
        }
        let mut clean = PathBuf::from("/");
        for component in path.components() {
            match component {
                Component::Normal(name) if name.len() > NAME_MAX => {
                    return Err(CgroupPathError::TooLong(name.len()));
                }
                Component::Normal(name) => clean.push(name),
                Component::ParentDir => return Err(CgroupPathError::Parent(path)),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(Self(clean))
    }
}

impl TryFrom<exact::Exact> for CgroupPath {
    type Error = CgroupPathError;

    fn try_from(exact::Exact(path): exact::Exact) -> Result<Self, CgroupPathError> {
        Self::try_from(path)
    }
}

impl TryFrom<&str> for CgroupPath {
    type Error = CgroupPathError;

    fn try_from(path: &str) -> Result<Self, CgroupPathError> {
        Self::try_from(PathBuf::from(path))
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control bytes are legal in a cgroup's name and must not reach a terminal or forge a line.
        let shown: String = self
            .0
            .to_string_lossy()
            .chars()
            .flat_map(|c| {
                let escaped = c.is_control().then(|| c.escape_default());
                escaped.clone().into_iter().flatten().chain(escaped.is_none().then_some(c))
            })
            .collect();
        f.pad(&shown)
    }
}

impl Serialize for CgroupPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        exact::serialize(&self.0, serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_is_cleaned_lexically() {
        let path = CgroupPath::try_from("//a/./b//c/").unwrap();
        assert_eq!(path.to_string(), "/a/b/c");
        assert_eq!((path.depth(), path.relative()), (3, Path::new("a/b/c")));
    }

    #[test]
    fn ways_out_are_refused() {
        for bad in ["a/b", "", "/a/../b", "/..", "/a\nb", "/a\0b"] {
            assert!(CgroupPath::try_from(bad).is_err(), "{bad:?}");
        }
        assert!(CgroupPath::try_from(format!("/{}", "x".repeat(5000)).as_str()).is_err());
        assert!(CgroupPath::try_from(format!("/{}", "x".repeat(256)).as_str()).is_err());
    }

    #[test]
    fn containment_is_by_component() {
        let outer = CgroupPath::try_from("/a/b").unwrap();
        assert!(outer.contains(&CgroupPath::try_from("/a/b/c").unwrap()));
        assert!(outer.contains(&outer));
        assert!(!outer.contains(&CgroupPath::try_from("/a/bc").unwrap()));
    }

    #[test]
    fn control_bytes_are_escaped_for_people() {
        assert_eq!(CgroupPath::try_from("/a\u{1b}[2Jb").unwrap().to_string(), "/a\\u{1b}[2Jb");
    }

    #[test]
    fn a_name_that_is_no_text_comes_back_from_json_and_no_way_out_does() {
        let path = CgroupPath::root().child(OsStr::from_bytes(b"a\xff\x1b")).unwrap();
        let json = serde_json::to_string(&path).unwrap();
        assert_eq!(json, r#""/a\u0000ff\u001b""#);
        assert_eq!(serde_json::from_str::<CgroupPath>(&json).unwrap(), path);
        for bad in [r#""a""#, r#""/a/..""#, r#""/\u00002e\u00002e""#, r#""/a\u00000a""#, r#""/a\u0000""#] {
            assert!(serde_json::from_str::<CgroupPath>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_accepted_path_is_clean_and_stable(text in "[/.a-c]{0,24}") {
            if let Ok(path) = CgroupPath::try_from(text.as_str()) {
                prop_assert!(path.as_path().is_absolute());
                prop_assert!(path.components().all(|name| name != ".." && name != "."));
                prop_assert_eq!(CgroupPath::try_from(path.as_path().to_owned()), Ok(path));
            }
        }
    }
}
