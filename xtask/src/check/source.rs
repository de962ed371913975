//! Rust sources as text, with comments and literals blanked: enough for rules about names, without a parser.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// One file.
#[derive(Debug)]
pub(super) struct Source {
    /// Relative to the workspace's root.
    pub(super) path: PathBuf,
    /// As it is.
    pub(super) text: String,
    /// The same bytes with spaces in place of comments, strings and characters.
    pub(super) code: String,
}

// === impl Source ===

impl Source {
    pub(super) fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { path: path.into(), code: blank(&text), text }
    }

    /// Every `.rs` file below some directories of the workspace, in order.
    pub(super) fn read(directories: &[&str]) -> anyhow::Result<Vec<Self>> {
        let root = crate::cargo::workspace();
        let mut sources = vec![];
        for directory in directories {
            collect(&root, &root.join(directory), &mut sources)?;
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sources)
    }

    /// The path below the crate's `src`.
    pub(super) fn inside_crate(&self) -> String {
        let path = self.path.to_string_lossy();
        path.rsplit_once("src/").map_or(&*path, |(_, inside)| inside).to_owned()
    }

    /// `file:line` of a byte.
    pub(super) fn place(&self, offset: usize) -> String {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1);
        format!("{}:{line}", self.path.display())
    }

    /// The code up to the unit tests, which by convention end a file. A file of tests has none.
    pub(super) fn tested_code(&self) -> &str {
        if self.path.file_stem().is_some_and(|stem| stem == "tests") {
            return "";
        }
        let inline = self.code.match_indices("#[cfg(test)]").find(|(at, _)| {
            let rest = self.code.get(*at..).unwrap_or_default();
            // `mod tests;` goes on elsewhere, and so does this file.
            rest.find(['{', ';']).is_some_and(|end| rest.as_bytes().get(end) == Some(&b'{'))
        });
        inline.and_then(|(at, _)| self.code.get(..at)).unwrap_or(&self.code)
    }
}

fn collect(root: &Path, directory: &Path, sources: &mut Vec<Source>) -> anyhow::Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            sources.push(Source::new(path.strip_prefix(root).unwrap_or(&path), text));
        }
    }
    Ok(())
}

/// Replaces comments and literals by spaces, byte by byte, keeping newlines.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let literal = literal_len(rest);
        let (token, after) = rest.split_at(literal.max(first_char_len(rest)));
        if literal > 0 {
            code.extend(token.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        } else {
            code.push_str(token);
        }
        rest = after;
    }
    code
}

fn first_char_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// Bytes of the comment or literal that `text` begins with; 0 if it begins with code.
fn literal_len(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_len(text);
    }
    if text.starts_with('"') {
        return string_len(text);
    }
    if text.starts_with('\'') {
        return character_len(text);
    }
    // No word can end in r before a quote, but for the prefixes of raw strings.
    if text.starts_with('r') { raw_string_len(text) } else { 0 }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut bytes = text.as_bytes().windows(2).enumerate();
    while let Some((at, pair)) = bytes.next() {
        match pair {
            b"/*" => depth = depth.saturating_add(1),
            b"*/" => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at.saturating_add(2);
        }
        bytes.next();
    }
    text.len()
}

fn string_len(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return at.saturating_add(1),
            _ => {}
        }
    }
    text.len()
}

/// A character literal; a lifetime is code.
fn character_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    let closed = match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            chars.find(|(_, c)| *c == '\'')
        }
        _ => chars.next().filter(|(_, c)| *c == '\''),
    };
    closed.map_or(0, |(at, _)| at.saturating_add(1))
}

/// `r"..."` and `r#"..."#`; a raw identifier is code.
fn raw_string_len(text: &str) -> usize {
    let hashes = text.bytes().skip(1).take_while(|byte| *byte == b'#').count();
    let open = format!("r{}\"", "#".repeat(hashes));
    let close = format!("\"{}", "#".repeat(hashes));
    if !text.starts_with(&open) {
        return 0;
    }
    let body = text.get(open.len()..).unwrap_or_default();
    body.find(&close).map_or(text.len(), |end| open.len().saturating_add(end).saturating_add(close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_nothing_moves() {
        for (text, code) in [
            ("a // x\nb", "a     \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("x \" y", c)"#, "f(        , c)"),
            ("r#\"a \" b\"# c", "           c"),
            (r#"br"\" c"#, "b     c"),
            (r"'a' '\'' &'a str", r"         &'a str"),
            ("for r in br", "for r in br"),
            ("\"é\" x", "     x"),
        ] {
            assert_eq!(blank(text), code, "{text}");
            assert_eq!(blank(text).len(), text.len());
        }
    }

    #[test]
    fn code_ends_where_the_unit_tests_begin() {
        let code = |text| Source::new("a.rs", text).tested_code().to_owned();
        assert_eq!(code("a\n#[cfg(test)]\nmod tests {\n b }"), "a\n");
        assert_eq!(code("#[cfg(test)]\nmod tests;\na"), "#[cfg(test)]\nmod tests;\na");
        assert_eq!(Source::new("x/tests.rs", "a").tested_code(), "");
    }
}
