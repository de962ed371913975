//! The C loop.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::view::View;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/reap/loop.c");

/// `loop.c`, running; ends with its value.
pub(crate) struct Rival {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

// === impl Rival ===

impl Rival {
    pub(crate) fn compile() -> Result<Self> {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reap-loop");
        let built =
            Command::new("cc").args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(SOURCE).status();
        ensure!(built.context("run cc")?.success(), "cc refused {SOURCE}");
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let ask = child.stdin.take().context("piped")?;
        let answers = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Self { child, ask, answers })
    }

    /// How long it took; `None` if it gave up.
    pub(crate) fn end(&mut self, view: &View) -> Result<Option<Duration>> {
        writeln!(self.ask, "{} {}", view.name, view.dir().display())?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some(("done", nanoseconds)) => Ok(Some(Duration::from_nanos(nanoseconds.parse()?))),
            None if line == "stuck\n" => Ok(None),
            _ => bail!("the C loop says {line:?}"),
        }
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
