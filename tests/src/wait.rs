//! Waiting for a state of the real world, with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(5);

/// Asks until there is an answer; after `limit` an error says what was waited for.
pub fn wait_for<T>(what: &str, limit: Duration, mut answer: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = answer()? {
            return Ok(value);
        }
        if started.elapsed() >= limit {
            bail!("not seen within {limit:?}: {what}");
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits until the condition holds.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(what, limit, || Ok(holds()?.then_some(())))
}
