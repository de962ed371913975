//! Processes that wait in a leak.

use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pause};

use crate::view::View;

/// So many processes; ended and collected with their value, and the cgroup with them.
pub(crate) struct Crowd<'a> {
    view: &'a View,
    pids: Vec<Pid>,
}

// === impl Crowd ===

impl<'a> Crowd<'a> {
    /// Forks them in the leak's cgroup: moving each would take longer than reaping all.
    pub(crate) fn inside(view: &'a View, count: usize) -> Result<Self> {
        view.enter()?;
        let mut crowd = Self { view, pids: vec![] };
        let (ready, writer) = nix::unistd::pipe()?;
        for _ in 0..count {
            crowd.pids.push(start(writer.as_raw_fd())?);
        }
        view.leave()?;
        let mut heard = 0;
        while heard < count {
            heard = heard.saturating_add(nix::unistd::read(&ready, &mut [0; 1024])?);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        for pid in &self.pids {
            // Its number is its own until it is waited for.
            let _dead = kill(*pid, Signal::SIGKILL);
        }
        // v1 keeps a frozen one from dying.
        self.view.clear();
        for pid in &self.pids {
            let _status = waitpid(*pid, None);
        }
        self.view.clear();
    }
}

fn start(ready: i32) -> Result<Pid> {
    #[expect(unsafe_code, reason = "a thousand processes for each leak")]
    // SAFETY: no other thread runs, and the child calls only async-signal-safe functions and never returns.
    let forked = unsafe { fork() }.context("fork")?;
    let ForkResult::Parent { child } = forked else {
        let _ends_with_us = set_pdeathsig(Signal::SIGKILL);
        #[expect(unsafe_code, reason = "a write that needs no owned descriptor")]
        // SAFETY: one byte of a static is read.
        let _told = unsafe { nix::libc::write(ready, b"x".as_ptr().cast(), 1) };
        loop {
            pause();
        }
    };
    Ok(child)
}
