//! A process whose main thread has exited, which `cgroup.kill` misses on several kernels.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::product::Product;
use crate::rival::Rival;
use crate::view::View;

const PATIENCE: Duration = Duration::from_secs(5);

/// Ended with its value.
struct Leaderless<'a> {
    child: Child,
    view: &'a View,
}

/// What each makes of one, in a line.
pub(crate) fn both_ways(view: &View, rival: &mut Rival, product: &mut Product) -> Result<String> {
    let left = Leaderless::inside(view)?;
    let rival = rival.end(view)?;
    let lives = left.lives();
    drop(left);
    let _leak = Leaderless::inside(view)?;
    let (act, _audited) = product.reap(view)?;
    let rival = match rival {
        Some(took) => format!("done in {took:.2?}"),
        None => format!("gave up after 1 s, the process lives: {lives}"),
    };
    Ok(format!(
        "{}  a process without its main thread: C loop {rival}; cgroup-reaper done in {act:.2?}",
        view.name
    ))
}

// === impl Leaderless ===

impl<'a> Leaderless<'a> {
    /// It loses its main thread inside: one that is moved afterwards leaves its main thread behind.
    fn inside(view: &'a View) -> Result<Self> {
        view.enter()?;
        let spawned = Command::new(env!("CARGO_BIN_EXE_leaderless"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        view.leave()?;
        let this = Self { child: spawned?, view };
        let start = Instant::now();
        while !fs::read_to_string(format!("/proc/{}/stat", this.child.id()))?.contains(") Z ") {
            ensure!(start.elapsed() < PATIENCE, "its main thread lives");
            std::thread::yield_now();
        }
        Ok(this)
    }

    fn lives(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        tasks.is_ok_and(|tasks| tasks.count() > 1)
    }
}

impl Drop for Leaderless<'_> {
    fn drop(&mut self) {
        let _dead = self.child.kill();
        let _status = self.child.wait();
        self.view.clear();
    }
}
