//! A compiler for the BPF target, and the linker that fits it.
//!
//! Needed are the source of `core` and a bpf-linker built against the LLVM of the compiler: bitcode of another
//! major version is refused. Two kinds are accepted, the first one found is taken: Debian's packages, and a rustup
//! nightly with `rust-src` and a bpf-linker on the PATH.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::{need, output, succeed};
use crate::build;

/// Debian's compiler that follows the newest Rust closely, its standard library's source and its cargo.
pub(super) const PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "cargo-web"];

/// For people without those packages.
pub(super) const ELSEWHERE: &str = "for the BPF object, where Debian's rustc-web is not to be had:
  rustup toolchain install nightly --component rust-src
  cargo install bpf-linker --locked";

const LINKER_VERSION: &str = "0.13.0";

/// Minor version of Rust 1.x that the workspace asks for (`rust-version`).
const OLDEST_MINOR: u32 = 95;

#[derive(Debug)]
pub(super) struct Toolchain {
    pub(super) cargo: PathBuf,
    pub(super) rustc: PathBuf,
    origin: Origin,
    /// Major version of its LLVM.
    llvm: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Debian,
    Rustup,
}

/// The first usable compiler.
pub(super) fn find() -> Option<Toolchain> {
    probe(Path::new("/usr"), Origin::Debian).or_else(|| {
        let sysroot =
            output(Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"])).ok()?;
        probe(Path::new(sysroot.trim()), Origin::Rustup)
    })
}

fn probe(sysroot: &Path, origin: Origin) -> Option<Toolchain> {
    let (cargo, rustc) = (sysroot.join("bin/cargo"), sysroot.join("bin/rustc"));
    let source = sysroot.join("lib/rustlib/src/rust/library/core");
    if !cargo.is_file() || !source.is_dir() {
        return None;
    }
    let version = output(Command::new(&rustc).arg("-vV").env_remove("LD_LIBRARY_PATH")).ok()?;
    let minor = number_after(&version, "release: 1.")?;
    let llvm = number_after(&version, "LLVM version: ")?;
    (minor >= OLDEST_MINOR).then_some(Toolchain { cargo, rustc, origin, llvm })
}

/// The number that follows a text.
fn number_after(text: &str, before: &str) -> Option<u32> {
    let (_, rest) = text.split_once(before)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

// === impl Toolchain ===

impl Toolchain {
    /// The linker that fits, if it is there.
    pub(super) fn installed_linker(&self) -> anyhow::Result<Option<PathBuf>> {
        let own = self.tools()?.join("bin/bpf-linker");
        if own.is_file() {
            return Ok(Some(own));
        }
        // One from elsewhere fits the compiler from elsewhere: whoever installed both meant them for each other.
        Ok(if self.origin == Origin::Rustup { need::program("bpf-linker") } else { None })
    }

    /// LLVM's development package, if it is not there.
    pub(super) fn missing_llvm(&self) -> Vec<String> {
        let present = self.llvm_prefix().join("bin/llvm-config").is_file();
        if present { Vec::new() } else { vec![format!("llvm-{}-dev", self.llvm)] }
    }

    /// Builds a linker into the target directory: about 40 s, once per LLVM.
    pub(super) fn install_linker(&self) -> anyhow::Result<PathBuf> {
        if self.origin == Origin::Rustup {
            bail!("no bpf-linker\n{ELSEWHERE}");
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        succeed(
            Command::new(cargo)
                .args(["install", "--locked", "bpf-linker", "--version", LINKER_VERSION])
                .args(["--no-default-features", "--features", &format!("llvm-{}", self.llvm)])
                .arg("--root")
                .arg(self.tools()?)
                .env("LLVM_PREFIX", self.llvm_prefix())
                .env_remove("CARGO_TARGET_DIR"),
        )?;
        self.installed_linker()?.context("cargo install has left no bpf-linker")
    }

    /// Takes debug information out of objects of any target.
    pub(super) fn strip(&self) -> Option<PathBuf> {
        Some(self.llvm_prefix().join("bin/llvm-strip")).filter(|strip| strip.is_file())
    }

    /// Debian's place for this LLVM.
    fn llvm_prefix(&self) -> PathBuf {
        PathBuf::from(format!("/usr/lib/llvm-{}", self.llvm))
    }

    /// A directory for each LLVM: a security update of Debian's compiler brings another one.
    fn tools(&self) -> anyhow::Result<PathBuf> {
        Ok(build::target_directory()?.join(format!("tools/llvm-{}", self.llvm)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_compiler_says() {
        let said = "rustc 1.96.0\nrelease: 1.96.0-nightly\nLLVM version: 22.1.8\n";
        assert_eq!(number_after(said, "release: 1."), Some(96));
        assert_eq!(number_after(said, "LLVM version: "), Some(22));
        assert_eq!(number_after(said, "GCC version: "), None);
        assert_eq!(number_after("LLVM version: unknown", "LLVM version: "), None);
    }
}
