//! Programs and files that must be there, and the Debian packages that have them.
//!
//! Looked for by what they are, not by package: a containerd from elsewhere is as good, and Debian's would
//! replace it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::output;
use crate::build;

/// Something that must be there.
pub(super) struct Need {
    package: &'static str,
    test: Test,
}

enum Test {
    /// A program on the PATH, or where administrators have theirs.
    Program(&'static str),
    /// The same, without an interpreter, so that it runs in an otherwise empty root.
    StaticProgram(&'static str),
    /// A file.
    File(&'static str),
    /// A library that the C compiler finds.
    Library(&'static str),
}

use Test::{File, Library, Program, StaticProgram};

const fn need(package: &'static str, test: Test) -> Need {
    Need { package, test }
}

/// First what builds, then what is tested against.
pub(super) const ALL: [Need; 11] = [
    need("gcc", Program("cc")),
    need("libc6-dev", Library("libc.a")),
    need("protobuf-compiler", Program("protoc")),
    need("ca-certificates", File("/etc/ssl/certs/ca-certificates.crt")),
    need("containerd", Program("containerd")),
    need("runc", Program("runc")),
    need("crun", Program("crun")),
    need("busybox-static", StaticProgram("busybox")),
    need("util-linux", Program("unshare")),
    need("iproute2", Program("ip")),
    need("prometheus", Program("promtool")),
];

// === impl Need ===

impl Need {
    pub(super) fn package(&self) -> String {
        self.package.to_owned()
    }

    pub(super) fn is_met(&self) -> bool {
        match self.test {
            Program(name) => program(name).is_some(),
            StaticProgram(name) => program(name).is_some_and(|path| is_static(&path)),
            File(path) => Path::new(path).exists(),
            Library(name) => has_library(name),
        }
    }
}

/// The first program of this name.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    places.map(|directory| directory.join(name)).find(|file| file.is_file())
}

fn is_static(path: &Path) -> bool {
    fs::read(path).is_ok_and(|elf| build::is_static(&elf) == Some(true))
}

/// The compiler answers with the bare name if it finds nothing.
fn has_library(name: &str) -> bool {
    output(Command::new("cc").arg(format!("-print-file-name={name}")))
        .is_ok_and(|found| Path::new(found.trim()).is_absolute())
}
