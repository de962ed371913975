//! Formatting, clippy and rustdoc, with every warning denied.

use anyhow::bail;

use crate::cargo::{self, cargo};

const FMT: &[&str] = &["fmt", "--all", "--check"];
const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
const DOC: &[&str] = &["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];

/// Runs all three, so that everything there is to say is seen at once.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut commands = [cargo(FMT), cargo(CLIPPY), cargo(DOC)];
    let failures: Vec<String> = commands
        .iter_mut()
        .filter_map(|command| cargo::run(command.env("RUSTDOCFLAGS", "-Dwarnings")).err())
        .map(|error| format!("{error:#}"))
        .collect();
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
}
