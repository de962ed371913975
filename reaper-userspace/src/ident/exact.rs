//! Paths as JSON text, without loss.
//!
//! A path of the node is bytes, JSON text is UTF-8, and a hostile name must neither make a whole look unwritable nor
//! come back as another name. Text stays as it is; a byte that is no UTF-8 becomes NUL and two hex digits. NUL is in
//! no path of Linux, so the spelling cannot be mistaken, and the backslashes of systemd's names need no escape.
//! `escape` and `unescape` are each other's inverse (`every_path_comes_back_exactly`).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serializer, de};

const ESCAPE: char = '\0';

/// A path in this spelling, for `#[serde(try_from = "..")]`.
#[derive(Debug, Deserialize)]
pub(super) struct Exact(#[serde(with = "self")] pub(super) PathBuf);

/// The text of a path.
fn escape(path: &Path) -> String {
    path.as_os_str().as_bytes().utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("{ESCAPE}{byte:02x}"));
        }
        text
    })
}

/// The path of a text; `None` if a NUL is not followed by two hex digits.
fn unescape(text: &str) -> Option<PathBuf> {
    let mut parts = text.split(ESCAPE);
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| hex)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(OsString::from_vec(bytes).into())
}

/// Writes a path, for `#[serde(with = "..")]`; serde's own refuses what is no UTF-8.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(path))
}

/// Reads a path.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(deserializer)?;
    unescape(&text).ok_or_else(|| de::Error::custom(format!("{text:?} has a NUL without two hex digits")))
}

/// The same for a path that may be missing.
pub mod optional {
    use super::{Deserializer, Exact, PathBuf, Serializer, escape};
    use serde::{Deserialize as _, Serialize as _};

    /// Writes a path or null.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(escape).serialize(serializer)
    }

    /// Reads a path or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Exact>::deserialize(deserializer)?.map(|Exact(path)| path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_stays_as_it_is_and_other_bytes_are_marked() {
        for (bytes, text) in [
            (b"/system-a\\x2db.slice".as_slice(), "/system-a\\x2db.slice"),
            ("/ä/ö".as_bytes(), "/ä/ö"),
            (b"/a\xff\xfe-b\xc3", "/a\0ff\0fe-b\0c3"),
        ] {
            assert_eq!(escape(&PathBuf::from(OsString::from_vec(bytes.to_vec()))), text);
        }
    }

    #[test]
    fn a_mark_without_a_byte_is_refused() {
        for bad in ["/a\0", "/a\0f", "/a\0xy", "/a\0+f", "/a\0é"] {
            assert_eq!(unescape(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_path_comes_back_exactly(bytes in proptest::collection::vec(1_u8.., 0..40)) {
            let path = PathBuf::from(OsString::from_vec(bytes));
            prop_assert_eq!(unescape(&escape(&path)), Some(path));
        }
    }
}
