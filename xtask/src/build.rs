//! The product: the BPF object, then one static binary with the object inside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, ensure};
use clap::Args as ClapArgs;

use crate::setup::{self, Tools, output, say, succeed};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Only the BPF object, TARGET/bpf/reaper-ebpf.o
    #[arg(long)]
    object: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let built = if args.object { object()? } else { product()? };
    say(&format!("built {}", built.display()));
    Ok(())
}

/// Builds the BPF object and returns its path.
pub(crate) fn object() -> anyhow::Result<PathBuf> {
    let tools = setup::ensure()?;
    let target = target_directory()?;
    let build = target.join("bpf-build");
    succeed(
        tool_cargo(&tools)
            .args([
                "build",
                "--locked",
                "--profile",
                "bpf",
                "--target",
                "bpfel-unknown-none",
                "-Zbuild-std=core",
            ])
            .args(["--package", "reaper-ebpf", "--bin", "reaper-ebpf", "--features", "bpf", "--target-dir"])
            .arg(&build),
    )?;
    let object = target.join("bpf/reaper-ebpf.o");
    install(&stripped(&tools, &build.join("bpfel-unknown-none/bpf/reaper-ebpf"))?, &object)?;
    Ok(object)
}

/// Of the debug information only the BTF is needed; the rest is five times the size of all else, and would be in the
/// binary and in memory. Where there is nothing to strip it with, it works as well.
fn stripped(tools: &Tools, built: &Path) -> anyhow::Result<PathBuf> {
    let Some(strip) = &tools.strip else { return Ok(built.to_owned()) };
    let stripped = built.with_extension("stripped");
    succeed(Command::new(strip).arg("--strip-debug").arg("-o").arg(&stripped).arg(built))?;
    Ok(stripped)
}

/// Builds everything and returns the path of the product.
pub(crate) fn product() -> anyhow::Result<PathBuf> {
    let object = object()?;
    let host = host()?;
    let target = target_directory()?;
    // With an explicit --target the flags reach neither build scripts nor procedural macros, which must stay
    // dynamic. The C library is glibc: no other target has to be installed.
    succeed(
        cargo()
            .args(["build", "--locked", "--release", "--package", "reaper-userspace", "--target", &host])
            .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
            .env("REAPER_BPF_OBJECT", &object),
    )?;
    let product = target.join("release/cgroup-reaper");
    install(&target.join(host).join("release/cgroup-reaper"), &product)?;
    verify(&product, &object)?;
    Ok(product)
}

/// Builds a program of the tests that runs on any node, and returns its path.
pub(crate) fn static_test(name: &str) -> anyhow::Result<PathBuf> {
    let host = host()?;
    succeed(
        cargo()
            .args(["build", "--locked", "--package", "reaper-tests", "--bin", name, "--target", &host])
            .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static"),
    )?;
    Ok(target_directory()?.join(host).join("debug").join(name))
}

fn verify(product: &Path, object: &Path) -> anyhow::Result<()> {
    let (binary, object) = (fs::read(product)?, fs::read(object)?);
    let shown = product.display();
    ensure!(is_static(&binary) == Some(true), "{shown} asks for a dynamic loader");
    ensure!(binary.windows(object.len()).any(|part| part == object), "{shown} lacks the BPF object");
    Ok(())
}

/// Whether a 64-bit little-endian ELF file has no interpreter; `None` for other files.
pub(crate) fn is_static(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: &[u8] = &3_u32.to_le_bytes();
    elf.strip_prefix(b"\x7fELF\x02\x01")?;
    let half = |at: usize| {
        let bytes = elf.get(at..)?.first_chunk()?;
        Some(usize::from(u16::from_le_bytes(*bytes)))
    };
    // Offsets of e_phoff, e_phentsize and e_phnum in the file header (elf(5)).
    let table = usize::try_from(u64::from_le_bytes(*elf.get(32..)?.first_chunk()?)).ok()?;
    let (size, count) = (half(54)?, half(56)?);
    let headers = elf.get(table..)?.get(..size.checked_mul(count)?)?;
    Some(headers.chunks_exact(size.max(1)).all(|header| !header.starts_with(PT_INTERP)))
}

/// Copies a built file, replacing the old one at once; not at all if nothing changed, so that nothing is built
/// again for it.
fn install(built: &Path, place: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(built).with_context(|| format!("cannot read {}", built.display()))?;
    if fs::read(place).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let directory = place.parent().context("a file has a directory")?;
    fs::create_dir_all(directory)?;
    let beside = place.with_extension("new");
    fs::copy(built, &beside).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, place).with_context(|| format!("cannot write {}", place.display()))
}

/// Cargo of the BPF toolchain. `LD_LIBRARY_PATH` is that of the cargo that runs this.
fn tool_cargo(tools: &Tools) -> Command {
    let flags = [
        OsString::from(format!("--cfg=bpf_target_arch=\"{}\"", env::consts::ARCH)),
        OsString::from("-Clink-arg=--btf"),
        OsString::from("-Cdebuginfo=2"),
        ["-Clinker=".as_ref(), tools.linker.as_os_str()].into_iter().collect(),
    ];
    let mut command = Command::new(&tools.cargo);
    command
        .current_dir(workspace())
        .env("RUSTC", &tools.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f".as_ref()))
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// The cargo that runs this.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// The triple of this machine.
fn host() -> anyhow::Result<String> {
    let version = output(Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

fn workspace() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Where cargo builds, whatever sets it.
pub(crate) fn target_directory() -> anyhow::Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let text = output(cargo().args(["metadata", "--locked", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    Ok(metadata.target_directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_told_from_other_files() {
        let test_binary = fs::read(env::current_exe().unwrap()).unwrap();
        assert_eq!(is_static(&test_binary), Some(false));
        assert_eq!(is_static(&test_binary[..64]), None);
        assert_eq!(is_static(b"#!/bin/sh"), None);
    }
}
