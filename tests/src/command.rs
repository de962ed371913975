//! Running a program with a time limit, its output kept.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::wait::wait_for;

/// How a program ended and what it said.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output, lossily decoded.
    pub stdout: String,
    /// Standard error, lossily decoded.
    pub stderr: String,
}

impl Finished {
    /// Standard output, or an error with what the program said.
    pub fn expect_success(self, what: &str) -> Result<String> {
        ensure!(self.code == Some(0), "{what}: exit {:?}: {}", self.code, self.stderr.trim());
        Ok(self.stdout)
    }
}

/// Runs to the end; past the limit the program is killed and the result is an error.
///
/// The program gets a process group of its own, so that Ctrl-C reaches only the caller, who then ends things in
/// order. Output goes through files: a daemon that inherits a pipe would keep a reader waiting.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    let program = command.get_program().to_owned();
    let stdout = tempfile::tempfile().context("file for standard output")?;
    let stderr = tempfile::tempfile().context("file for standard error")?;
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().context("standard output")?)
        .stderr(stderr.try_clone().context("standard error")?)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let ended =
        wait_for(&format!("end of {}", program.display()), limit, || child.try_wait().context("wait"));
    if ended.is_err() {
        child.kill().context("kill a program that takes too long")?;
        child.wait().context("wait for a killed program")?;
    }
    let (stdout, stderr) = (text(stdout)?, text(stderr)?);
    let status = ended.with_context(|| format!("it had said: {}", stderr.trim()))?;
    Ok(Finished { code: status.code(), stdout, stderr })
}

fn text(mut file: File) -> Result<String> {
    file.rewind().context("rewind output")?;
    let mut bytes = Vec::new();
    io::copy(&mut file, &mut bytes).context("read output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
