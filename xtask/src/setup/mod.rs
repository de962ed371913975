//! What building and testing need: found, installed where that is possible, named where it is not.
//!
//! Installs only as root on Debian, only what is missing, and never at the price of something that is there.
//! Never downloads a Rust toolchain from elsewhere. When nothing is missing it only looks (some 50 ms).

mod debian;
mod need;
mod toolchain;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use self::need::Need;
use self::toolchain::Toolchain;

/// What the BPF object is built with.
#[derive(Debug)]
pub(crate) struct Tools {
    /// A cargo that takes `-Z` flags when `RUSTC_BOOTSTRAP` is set.
    pub(crate) cargo: PathBuf,
    /// Its compiler, which has the source of `core`.
    pub(crate) rustc: PathBuf,
    /// A bpf-linker that reads this compiler's bitcode.
    pub(crate) linker: PathBuf,
    /// `llvm-strip`, if LLVM brought one.
    pub(crate) strip: Option<PathBuf>,
}

pub(crate) fn run() -> anyhow::Result<()> {
    let Tools { cargo, rustc, linker, strip: _ } = ensure()?;
    say(&format!("ready: {}, {}, {}", cargo.display(), rustc.display(), linker.display()));
    Ok(())
}

/// Makes sure that everything is there, and says with what to build.
pub(crate) fn ensure() -> anyhow::Result<Tools> {
    let mut missing: Vec<_> = need::ALL.iter().filter(|need| !need.is_met()).map(Need::package).collect();
    if toolchain::find().is_none() {
        missing.extend(toolchain::PACKAGES.map(str::to_owned));
    }
    debian::install(&missing)?;
    let found = toolchain::find().context("the packages are installed, but there is no usable compiler")?;
    let (linker, strip) = (linker(&found)?, found.strip());
    let Toolchain { cargo, rustc, .. } = found;
    Ok(Tools { cargo, rustc, linker, strip })
}

/// Makes sure that these programs are there, given as (package, program).
pub(crate) fn programs(wanted: &[(&str, &str)]) -> anyhow::Result<()> {
    let missing = wanted.iter().filter(|(_, program)| need::program(program).is_none());
    debian::install(&missing.map(|(package, _)| (*package).to_owned()).collect::<Vec<_>>())
}

fn linker(toolchain: &Toolchain) -> anyhow::Result<PathBuf> {
    if let Some(found) = toolchain.installed_linker()? {
        return Ok(found);
    }
    debian::install(&toolchain.missing_llvm())?;
    toolchain.install_linker()
}

/// Runs a command, shows it, and fails unless it succeeds.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    let shown = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    say(&shown);
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// The output of a command that succeeds.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !done.status.success() {
        bail!("{}: {}", command.get_program().display(), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8(done.stdout)?)
}

#[expect(clippy::print_stdout, reason = "progress for the person who waits")]
pub(crate) fn say(line: &str) {
    println!("xtask: {line}");
}
