//! Units of systemd by name and by run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ContainerId;

/// `src/basic/unit-def.h:UNIT_NAME_MAX`.
const MAX_LEN: usize = 255;

/// How scopes of containerd's containers begin: CRI, nerdctl, docker. Runtimes escape nothing in them.
const CONTAINER_PREFIXES: [&str; 3] = ["cri-containerd-", "nerdctl-", "docker-"];

/// The name of a unit (`src/basic/unit-name.c:unit_name_is_valid`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UnitName(String);

/// One run of a unit: a unit of the same name that was started again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InvocationId([u8; 16]);

/// Why it is no name or id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitNameError {
    /// Empty, too long, without a suffix, or with a character that no unit has.
    #[error("{0:?} is no unit name")]
    Name(String),
    /// Not sixteen bytes, or not in hexadecimal.
    #[error("{0:?} is no invocation id")]
    Invocation(String),
}

// === impl UnitName ===

impl UnitName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The container whose scope has this name, if it is a container's: a claim that `systemd-run` can make too.
    pub fn container(&self) -> Option<ContainerId> {
        let stem = self.0.strip_suffix(".scope")?;
        let id = CONTAINER_PREFIXES.iter().find_map(|prefix| stem.strip_prefix(prefix))?;
        ContainerId::try_from(id).ok()
    }

    /// Patterns as `ListUnitsByPatterns` takes them, for every name that [`Self::container`] knows.
    pub fn container_patterns() -> Vec<String> {
        CONTAINER_PREFIXES.iter().map(|prefix| format!("{prefix}*.scope")).collect()
    }
}

impl TryFrom<String> for UnitName {
    type Error = UnitNameError;

    fn try_from(name: String) -> Result<Self, UnitNameError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || ":_.-\\@".contains(c);
        let suffixed =
            name.rsplit_once('.').is_some_and(|(stem, suffix)| !stem.is_empty() && !suffix.is_empty());
        let valid = suffixed && name.len() <= MAX_LEN && name.chars().all(allowed);
        if valid { Ok(Self(name)) } else { Err(UnitNameError::Name(name)) }
    }
}

impl From<UnitName> for String {
    fn from(name: UnitName) -> Self {
        name.0
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

// === impl InvocationId ===

impl InvocationId {
    /// From the property, which is empty for a unit that never ran.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl TryFrom<String> for InvocationId {
    type Error = UnitNameError;

    fn try_from(text: String) -> Result<Self, UnitNameError> {
        let byte = |pair: &[u8]| {
            let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
            u8::try_from(digit(0)?.checked_mul(16)?.checked_add(digit(1)?)?).ok()
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.as_deref().and_then(Self::from_bytes).ok_or(UnitNameError::Invocation(text))
    }
}

impl From<InvocationId> for String {
    fn from(id: InvocationId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str) -> Option<String> {
        UnitName::try_from(name.to_owned()).unwrap().container().map(String::from)
    }

    #[test]
    fn scopes_of_containers_are_known_by_their_names() {
        for (name, id) in [
            ("cri-containerd-3f0c9a1be2d4.scope", "3f0c9a1be2d4"),
            ("docker-a.scope", "a"),
            ("nerdctl-web-1.scope", "web-1"),
            ("cri-containerd-web.scope.scope", "web.scope"),
        ] {
            assert_eq!(container(name).as_deref(), Some(id));
        }
    }

    #[test]
    fn what_is_no_containers_scope_is_never_taken_for_one() {
        for name in [
            "crio-3f0c.scope",
            "crio-conmon-3f0c.scope",
            "libpod-3f0c.scope",
            "session-1.scope",
            "init.scope",
            "run-r5.scope",
            "-.slice",
            "kubepods.slice",
            "kubepods-pod1.slice",
            "docker-abc.slice",
            "cri-containerd-abc.service",
            "cri-containerd-.scope",
            "cri-containerd-.hidden.scope",
            "my-cri-containerd-abc.scope",
            r"cri-containerd-a\x2db.scope",
            "docker-a@b:c.mount",
        ] {
            assert_eq!(container(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_systemd_refuses_are_refused() {
        for bad in ["", "x", ".scope", "x.", "a b.scope", "a/b.scope", "a\nb.scope", "é.scope"] {
            assert!(UnitName::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(UnitName::try_from(format!("{}.scope", "x".repeat(250))).is_err());
    }

    #[test]
    fn each_known_prefix_has_a_pattern() {
        for pattern in UnitName::container_patterns() {
            assert!(container(&pattern.replace('*', "abc")).is_some(), "{pattern}");
        }
    }

    #[test]
    fn an_invocation_id_is_read_back_as_it_is_shown() {
        let id = InvocationId::from_bytes(&[0xab; 16]).unwrap();
        assert_eq!(InvocationId::try_from(id.to_string()), Ok(id));
        for bad in ["", "ab", "zz", &"ab".repeat(17), &"a".repeat(31), &"+f".repeat(16)] {
            assert!(InvocationId::try_from((*bad).to_owned()).is_err(), "{bad}");
        }
        assert_eq!(InvocationId::from_bytes(&[]), None);
    }
}
