//! Lines and their chain: `hash = SHA-256(previous hash || this line up to ,"hash")`.
//!
//! The hash covers the exact bytes of the line, so that no canonical form of JSON is needed to check it.

use std::fmt;
use std::fmt::Write as _;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use sha2::{Digest as _, Sha256};

/// Longest line that is written or read. A record is a few KiB; ten thousand steps stay below.
pub(super) const MAX_LINE: usize = 16 << 20;

const HASH_KEY: &[u8] = b",\"hash\":\"";
const END: &[u8] = b"\"}";

/// A SHA-256 value, spelled `sha256:` and 64 lower case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Text that is no [`Digest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sha256: and 64 lower case hexadecimal digits")]
pub struct DigestError;

/// A line as it stands in the file, taken apart.
pub(super) struct Line<'a> {
    /// Everything before `,"hash"`.
    pub(super) covered: &'a [u8],
    /// The hash that the line carries.
    pub(super) hash: Digest,
}

// === impl Digest ===

impl Digest {
    /// What the first line of a chain has for its predecessor.
    pub const GENESIS: Self = Self([0; 32]);

    const PREFIX: &'static str = "sha256:";
    const TEXT_LEN: usize = Self::PREFIX.len() + 64;

    /// The hash of some parts in a row.
    pub(super) fn of(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let mut hasher = Sha256::new();
        parts.into_iter().for_each(|part| hasher.update(part.as_ref()));
        Self(hasher.finalize().into())
    }

    /// The hash of a line that follows the one with this hash.
    pub(super) fn next(&self, covered: &[u8]) -> Self {
        Self::of([self.0.as_slice(), covered])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        let hex = text.strip_prefix(Self::PREFIX).filter(|hex| hex.len() == 64).ok_or(DigestError)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let pair = str::from_utf8(pair).map_err(|_not_ascii| DigestError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_not_hex| DigestError)?;
        }
        let digest = Self(bytes);
        // One spelling only: upper case, or a sign that from_str_radix takes, would be an edit nobody notices.
        if digest.to_string() == text { Ok(digest) } else { Err(DigestError) }
    }
}

// === lines ===

/// Encodes a record, whose last key must be `prev`, to a line that follows the one with the hash `prev`.
pub(super) fn seal(record: &impl Serialize, prev: Digest) -> Result<(Vec<u8>, Digest), serde_json::Error> {
    let mut line = Vec::with_capacity(1024);
    record.serialize(&mut serde_json::Serializer::with_formatter(&mut line, Escaping))?;
    // The closing brace comes back behind the hash.
    line.pop();
    let hash = prev.next(&line);
    line.extend_from_slice(HASH_KEY);
    line.extend_from_slice(hash.to_string().as_bytes());
    line.extend_from_slice(END);
    line.push(b'\n');
    Ok((line, hash))
}

/// Takes a line without its newline apart; `None` if it does not end in a hash, spelled exactly.
pub(super) fn split(line: &[u8]) -> Option<Line<'_>> {
    let rest = line.strip_suffix(END)?;
    let (rest, text) = rest.split_at_checked(rest.len().checked_sub(Digest::TEXT_LEN)?)?;
    let covered = rest.strip_suffix(HASH_KEY)?;
    let hash = Digest::try_from(String::from_utf8(text.to_vec()).ok()?).ok()?;
    Some(Line { covered, hash })
}

/// JSON without any character that a terminal obeys or an editor hides. `serde_json` escapes those below space;
/// this adds DEL, the C1 controls, line separators and the controls of writing direction.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut text = String::with_capacity(fragment.len());
        for c in fragment.chars() {
            if is_hidden(c) {
                // All of them are in the basic plane, so that four digits do.
                write!(text, "\\u{:04x}", u32::from(c)).map_err(io::Error::other)?;
            } else {
                text.push(c);
            }
        }
        writer.write_all(text.as_bytes())
    }
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_line_splits_into_what_its_hash_covers() {
        let (line, hash) = seal(&serde_json::json!({"a": 1}), Digest::GENESIS).unwrap();
        let split = split(line.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!((split.covered, split.hash), (b"{\"a\":1".as_slice(), hash));
        assert_eq!(Digest::GENESIS.next(split.covered), hash);
    }

    #[test]
    fn the_hash_is_plain_sha256_of_the_previous_hash_and_the_line() {
        // (head -c 32 /dev/zero; printf '{"a":1') | sha256sum
        let expected = "sha256:607ca6addc015e6bd181f4700e76996f0a2361ee7a2e4b2dbe5d7dd2f948d448";
        assert_eq!(Digest::GENESIS.next(b"{\"a\":1").to_string(), expected);
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let good = Digest::GENESIS.next(b"x").to_string();
        assert!(Digest::try_from(good.clone()).is_ok());
        for bad in
            [good.to_uppercase(), good.replace("sha256:", "sha1:"), format!("{good}0"), good[..70].to_owned()]
        {
            assert_eq!(Digest::try_from(bad), Err(DigestError));
        }
        assert_eq!(Digest::try_from(format!("sha256:{}", "+1".repeat(32))), Err(DigestError));
    }

    #[test]
    fn control_characters_never_reach_the_file() {
        let nasty = "a\n\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2028}\"b\\";
        let (line, _) = seal(&serde_json::json!({ "a": nasty }), Digest::GENESIS).unwrap();
        let text = String::from_utf8(line).unwrap();
        assert!(!text.trim_end_matches('\n').chars().any(is_hidden), "{text:?}");
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["a"], nasty);
    }
}
