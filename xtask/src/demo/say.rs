//! What the demo tells: numbered steps, and a sign of life while it waits.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

/// The narrator, who also listens for Ctrl-C.
#[derive(Debug)]
pub(super) struct Say {
    story: Story,
    // A flag asked between steps, so that destructors run.
    interrupted: Arc<AtomicBool>,
    steps: u32,
    step_began: Instant,
    last_sign: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Story {
    Stdout,
    Stderr,
}

// === impl Say ===

impl Say {
    /// Also takes over SIGINT and SIGTERM.
    pub(super) fn new(json: bool) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("take over a signal")?;
        }
        let story = if json { Story::Stderr } else { Story::Stdout };
        let now = now();
        Ok(Self { story, interrupted, steps: 0, step_began: now, last_sign: now })
    }

    /// Begins a step.
    pub(super) fn step(&mut self, title: &str) {
        self.steps = self.steps.saturating_add(1);
        self.step_began = now();
        self.last_sign = self.step_began;
        self.write(&format!("\n{}. {title}", self.steps));
    }

    /// One line of the current step.
    pub(super) fn line(&self, line: &str) {
        self.write(&format!("   {line}"));
    }

    /// What a program printed.
    pub(super) fn quote(&self, text: &str) {
        text.lines().for_each(|line| self.write(&format!("   | {line}")));
    }

    /// An error after Ctrl-C.
    pub(super) fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// To be called again and again in a wait: shows that it goes on, and fails after Ctrl-C.
    pub(super) fn tick(&mut self) -> Result<()> {
        self.check()?;
        if self.last_sign.elapsed() >= SIGN_OF_LIFE {
            self.last_sign = now();
            self.line(&format!("... {} s", self.step_began.elapsed().as_secs()));
        }
        Ok(())
    }

    /// Does long work on another thread; after Ctrl-C `abort` must make it end soon.
    pub(super) fn during<T: Send>(
        &mut self,
        work: impl FnOnce() -> Result<T> + Send,
        abort: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        std::thread::scope(|scope| {
            let worker = scope.spawn(work);
            while !worker.is_finished() {
                if let Err(interrupted) = self.tick() {
                    self.line("interrupted: removing what was made");
                    return Err(abort().err().unwrap_or(interrupted));
                }
                pause();
            }
            worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the demo panicked")))
        })
    }

    fn write(&self, line: &str) {
        match self.story {
            Story::Stdout => emit(&mut io::stdout(), line),
            Story::Stderr => emit(&mut io::stderr(), line),
        }
    }
}

/// The last line with `--json`: the only one on standard output then.
pub(super) fn result(line: &str) {
    emit(&mut io::stdout(), line);
}

fn emit(to: &mut impl Write, line: &str) {
    // A reader that went away (a closed pipe) must not keep the demo from removing what it made.
    drop(writeln!(to, "{line}").and_then(|()| to.flush()));
}

#[expect(clippy::disallowed_methods, reason = "the demo tells how long it has waited")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a poll beside a thread that works")]
fn pause() {
    std::thread::sleep(POLL);
}
