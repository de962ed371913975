//! Paths that are never touched, as patterns.

use std::fmt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

/// A pattern of cgroup paths, as shells have them: `*` and `?` stay within one name, `**` does not, `[..]` is one of
/// several characters, `{a,b}` one of several words.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern(GlobMatcher);

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a pattern.
    #[error("cannot be understood: {0}")]
    Syntax(String),
    /// Cgroup paths begin with a slash: this could never protect anything.
    #[error("a cgroup path begins with /, this pattern can never match one")]
    Relative,
}

// === impl PathPattern ===

impl PathPattern {
    /// Whether it is or encloses this path: what lies inside of a protected cgroup is protected.
    pub fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.0.is_match(above))
    }
}

impl TryFrom<String> for PathPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        if !text.starts_with(['/', '*', '{', '[', '?']) {
            return Err(PatternError::Relative);
        }
        GlobBuilder::new(&text)
            .literal_separator(true)
            .build()
            .map(|glob| Self(glob.compile_matcher()))
            .map_err(|error| PatternError::Syntax(error.kind().to_string()))
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.glob().glob())
    }
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.glob() == other.0.glob()
    }
}

impl Eq for PathPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_it_names_and_all_below() {
        for (pattern, path, covers) in [
            ("/kubepods/*/pod1/**", "/kubepods/burstable/pod1/c", true),
            ("/kubepods/*/pod1", "/kubepods/burstable/pod1/c", true),
            ("/kubepods/*", "/kubepods", false),
            ("/kubepods/pod*", "/kubepods/burstable/pod1", false),
            ("/**/{db,etcd}-*", "/a/b/etcd-0", true),
            ("/a/b", "/a/bc", false),
            ("**/x?", "/a/x1", true),
        ] {
            let matcher = PathPattern::try_from(pattern.to_owned()).unwrap();
            assert_eq!(matcher.covers(Path::new(path)), covers, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_protect_is_refused() {
        assert_eq!(PathPattern::try_from("kubepods/*".to_owned()), Err(PatternError::Relative));
        for bad in ["/a[", "/{a", ""] {
            assert!(PathPattern::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
