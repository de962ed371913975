//! Containers by namespace and id.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest id or namespace accepted; containerd refuses more than 76 bytes, other runtimes go further.
const MAX_LEN: usize = 255;

/// A container (or sandbox) id, safe as one component of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(String);

/// A containerd namespace (`k8s.io`, `moby`, `default`), safe as one component of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Namespace(String);

/// A container of one containerd: ids are unique only within a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerKey {
    /// The containerd namespace.
    pub namespace: Namespace,
    /// The id within it.
    pub id: ContainerId,
}

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("empty name")]
    Empty,
    /// Longer than any runtime makes them.
    #[error("name of {0} bytes is too long")]
    TooLong(usize),
    /// Hidden names are containerd's deletion leftovers, `.` and `..` are not names.
    #[error("name {0:?} begins with a dot")]
    LeadingDot(String),
    /// A slash would leave the directory; control bytes would forge a log line.
    #[error("name {0:?} has a character outside [A-Za-z0-9_.+:@-]")]
    Character(String),
}

fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_LEN {
        return Err(NameError::TooLong(name.len()));
    }
    if name.starts_with('.') {
        return Err(NameError::LeadingDot(name.to_owned()));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.+:@-".contains(c);
    if name.chars().all(allowed) { Ok(()) } else { Err(NameError::Character(name.to_owned())) }
}

macro_rules! checked_name {
    ($name:ident) => {
        impl $name {
            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                check(&name).map(|()| Self(name))
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;

            fn try_from(name: &str) -> Result<Self, NameError> {
                Self::try_from(name.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

checked_name!(ContainerId);
checked_name!(Namespace);

impl fmt::Display for ContainerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_directory_or_forge_a_line_are_refused() {
        for bad in ["", ".", "..", ".gone", "a/b", "a\nb", "a b", "a\u{1b}[0m", "é"] {
            assert!(ContainerId::try_from(bad).is_err(), "{bad:?}");
            assert!(Namespace::try_from(bad).is_err(), "{bad:?}");
        }
        assert_eq!(ContainerId::try_from("x".repeat(300)), Err(NameError::TooLong(300)));
    }

    #[test]
    fn names_that_runtimes_make_are_accepted() {
        for good in ["t1", "k8s.io", "plugins.moby", "0123abc", "web-1_a+b"] {
            assert_eq!(ContainerId::try_from(good).map(String::from), Ok(good.to_owned()));
        }
    }
}
