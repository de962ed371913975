//! A program that does nothing, on a tracepoint: what the kernel takes for running and timing any program there.
#![expect(unsafe_code, reason = "bpf(2) for a program that no object file holds")]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};

const PROG_LOAD: i32 = 5;
const RAW_TRACEPOINT_OPEN: i32 = 17;
const TYPE_RAW_TRACEPOINT: u32 = 17;

/// `r0 = 0; exit` (`struct bpf_insn`, eight bytes each).
const NOTHING: [u64; 2] = [0xb7, 0x95];

/// The part of `union bpf_attr` for `BPF_PROG_LOAD`.
#[derive(Default)]
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
}

/// The part for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct Open {
    name: u64,
    program: u32,
    _padding: u32,
}

/// An attached program that does nothing; gone with its value.
pub(crate) struct Nothing {
    program: OwnedFd,
    _link: OwnedFd,
}

// === impl Nothing ===

impl Nothing {
    pub(crate) fn attach(tracepoint: &std::ffi::CStr) -> Result<Self> {
        let load = Load {
            kind: TYPE_RAW_TRACEPOINT,
            instructions: 2,
            code: address(&NOTHING),
            license: address(c"GPL".to_bytes_with_nul()),
            ..Load::default()
        };
        let program = bpf(PROG_LOAD, &load).context("load a program that does nothing")?;
        let number = u32::try_from(std::os::fd::AsRawFd::as_raw_fd(&program))?;
        let open = Open { name: address(tracepoint.to_bytes_with_nul()), program: number, _padding: 0 };
        let link = bpf(RAW_TRACEPOINT_OPEN, &open).context("attach a program that does nothing")?;
        Ok(Self { program, _link: link })
    }

    pub(crate) const fn program(&self) -> &OwnedFd {
        &self.program
    }
}

fn address<T: ?Sized>(data: &T) -> u64 {
    let pointer: *const T = data;
    u64::try_from(pointer.cast::<u8>().addr()).unwrap_or_default()
}

fn bpf<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are the beginning of the union for this command, with their size; what they point to
    // outlives the call, and the kernel only reads it.
    let fd = unsafe {
        nix::libc::syscall(nix::libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    match i32::try_from(fd) {
        // SAFETY: both commands return a new descriptor that nobody else knows.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
