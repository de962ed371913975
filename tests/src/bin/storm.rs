//! Makes processes as fast as it can, when told to by a line: `storm fork|exec COUNT`. Says how long it took, in
//! nanoseconds.

use std::io::{self, BufRead as _, Write as _};
use std::process::Command;

use anyhow::{Context as _, bail};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use rustix::time::{ClockId, clock_gettime};

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let (mode, count) = (words.next().context("fork or exec?")?, words.next().context("how many?")?);
    let count: u64 = count.parse().context("how many?")?;
    let make = match mode.as_str() {
        "fork" => forked,
        "exec" => executed,
        other => bail!("{other}: fork or exec?"),
    };
    let mut line = String::new();
    while io::stdin().lock().read_line(&mut line)? > 0 {
        let begun = now();
        for _ in 0..count {
            make()?;
        }
        writeln!(io::stdout(), "{}", now().saturating_sub(begun))?;
        line.clear();
    }
    Ok(())
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

fn forked() -> anyhow::Result<()> {
    #[expect(unsafe_code, reason = "no safe function makes a process that runs no program")]
    // SAFETY: this program has one thread, so the child may do anything; it only ends.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        #[expect(unsafe_code, reason = "the standard library's exit would run the parent's exit handlers")]
        // SAFETY: takes a number and does not return.
        ForkResult::Child => unsafe { nix::libc::_exit(0) },
    };
    waitpid(child, None)?;
    Ok(())
}

fn executed() -> anyhow::Result<()> {
    Command::new("/bin/true").status()?;
    Ok(())
}
