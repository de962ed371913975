//! Names of tasks.

use std::fmt;

/// A task's `comm`: at most 15 bytes, cut, chosen by the task itself. A hint, never evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Comm([u8; 16]);

// === impl Comm ===

impl Comm {
    /// From the kernel's NUL padded bytes.
    pub const fn from_kernel(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The name's bytes, without the padding.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// All 16 bytes, as the kernel sent them.
    pub const fn padded(self) -> [u8; 16] {
        self.0
    }
}

/// Bytes outside printable ASCII are escaped: a task's name must not forge a line.
impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().escape_ascii().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_its_first_nul_and_cannot_forge_a_line() {
        let comm = Comm::from_kernel(*b"a\nb\x1b[0m\0leftover");
        assert_eq!(comm.as_bytes(), b"a\nb\x1b[0m");
        assert_eq!(comm.to_string(), "a\\nb\\x1b[0m");
    }
}
