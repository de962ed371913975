//! Puts the BPF object into the binary, where there is one.
//!
//! It comes from `REAPER_BPF_OBJECT`, else from `bpf/reaper-ebpf.o` of the target directory, where
//! `cargo xtask build` leaves it. Without one the crate still builds, and the daemon runs at probe level `poll`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=REAPER_BPF_OBJECT");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let embedded = out.join("reaper-ebpf.o");
    let copied = match env::var_os("REAPER_BPF_OBJECT").map(PathBuf::from) {
        Some(object) => {
            println!("cargo::rerun-if-changed={}", object.display());
            fs::copy(&object, &embedded).map(drop).map_err(|e| format!("{}: {e}", object.display()))?;
            true
        }
        None => copy_default(&out, &embedded)?,
    };
    if !copied {
        fs::File::create(&embedded)?;
    }
    Ok(())
}

/// False if the object is not built yet. The directory is made and watched, as a missing path would make cargo
/// rebuild the crate every time.
fn copy_default(out: &Path, embedded: &Path) -> io::Result<bool> {
    let Some(directory) = target_directory(out).map(|target| target.join("bpf")) else { return Ok(false) };
    fs::create_dir_all(&directory)?;
    println!("cargo::rerun-if-changed={}", directory.display());
    match fs::copy(directory.join("reaper-ebpf.o"), embedded) {
        Ok(_bytes) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Cargo tags the directory that holds all it builds (`CACHEDIR.TAG`), whatever its name is, and those for single
/// targets within it.
fn target_directory(out: &Path) -> Option<&Path> {
    let tagged = out.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file())?;
    if tagged.file_name() == env::var_os("TARGET").as_deref() { tagged.parent() } else { Some(tagged) }
}
