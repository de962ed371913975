//! Makes processes that take each other's numbers: `reuse COUNT`. For each line it reads it makes this many, on four
//! numbers in turn, and waits for each to end.
#![expect(unsafe_code, reason = "the standard library does not choose the number of a process")]

use std::io;

use anyhow::{Context as _, Result};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

const NUMBERS: usize = 4;

fn main() -> Result<()> {
    let count: usize = std::env::args().nth(1).context("how many?")?.parse()?;
    let mut numbers: Vec<i32> = vec![];
    let mut line = String::new();
    while io::stdin().read_line(&mut line)? > 0 {
        for turn in 0..count {
            let wanted = numbers.get(turn % NUMBERS).copied();
            let number = make(wanted)?;
            if wanted.is_none() {
                numbers.push(number);
            }
        }
        line.clear();
    }
    Ok(())
}

/// Makes a process that only ends, waits for it, and returns its number. Others may have taken a wanted one: then it
/// is waited for.
fn make(wanted: Option<i32>) -> Result<i32> {
    loop {
        match clone(wanted) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EEXIST) => std::thread::yield_now(),
            Err(error) => return Err(error).context("clone3"),
            Ok(pid) => {
                waitpid(Pid::from_raw(pid), None)?;
                return Ok(pid);
            }
        }
    }
}

/// `clone3` as `fork`, with a wanted number (`set_tid`, Linux 5.5).
fn clone(wanted: Option<i32>) -> io::Result<i32> {
    let numbers = [wanted.unwrap_or_default()];
    // SAFETY: the structure is integers, for which zeros are a value.
    let mut args: nix::libc::clone_args = unsafe { std::mem::zeroed() };
    args.exit_signal = u64::try_from(nix::libc::SIGCHLD).unwrap_or_default();
    if wanted.is_some() {
        args.set_tid = u64::try_from(numbers.as_ptr().addr()).unwrap_or_default();
        args.set_tid_size = 1;
    }
    // SAFETY: without a stack and without CLONE_VM the child goes on here on a copy of this one, as after fork; there
    // is one thread.
    let pid = unsafe { nix::libc::syscall(nix::libc::SYS_clone3, &raw const args, size_of_val(&args)) };
    match i32::try_from(pid) {
        // SAFETY: takes a number and does not return.
        Ok(0) => unsafe { nix::libc::_exit(0) },
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(io::Error::last_os_error()),
    }
}
