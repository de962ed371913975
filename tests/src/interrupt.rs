//! SIGINT and SIGTERM as a question to ask between steps, so that destructors run.

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Both signals, blocked for the process and read from a descriptor.
///
/// Programs started by `std::process::Command` get an empty signal mask again.
#[derive(Debug)]
pub struct Interrupt {
    pending: SignalFd,
}

// === impl Interrupt ===

impl Interrupt {
    /// Blocks the signals. To be called before the first thread is started, which inherits the mask.
    pub fn install() -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block().context("block SIGINT and SIGTERM")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { pending: SignalFd::with_flags(&set, flags).context("signalfd")? })
    }

    /// An error if a signal has come since the last question: the caller stops on it.
    pub fn check(&self) -> Result<()> {
        if self.pending.read_signal().context("read signalfd")?.is_some() {
            bail!("interrupted");
        }
        Ok(())
    }
}
