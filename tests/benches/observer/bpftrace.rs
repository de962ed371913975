//! The usual tool with the same question: who of these forks, executes or ends, if not one of mine?

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// A number that no process has: everything is filtered out, as in our programs.
const SCRIPT: &str = r#"
BEGIN { printf("attached\n"); }
tracepoint:sched:sched_process_exec /args->pid == 4194305/ { @exec = count(); }
tracepoint:sched:sched_process_exit /args->pid == 4194305/ { @exit = count(); }
tracepoint:sched:sched_process_fork /args->parent_pid == 4194305/ { @fork = count(); }
"#;

/// A mount namespace of its own, as tracefs need not be mounted on the machine.
const RUN: &str = "mount --make-rprivate / && mount -t tracefs tracefs /sys/kernel/tracing \
                   && mount -t debugfs debugfs /sys/kernel/debug && exec bpftrace -e \"$0\"";

/// bpftrace, attached; ended with its value.
pub(crate) struct Bpftrace(Child);

// === impl Bpftrace ===

impl Bpftrace {
    pub(crate) fn attach() -> Result<Self> {
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-c", RUN, SCRIPT])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run unshare")?;
        let mut bpftrace = Self(child);
        let output = bpftrace.0.stdout.take().context("piped")?;
        let attached = BufReader::new(output).lines().map_while(Result::ok).any(|line| line == "attached");
        ensure!(attached, "bpftrace ended without attaching (package bpftrace)");
        Ok(bpftrace)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // Gone already: then there is nothing to end.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
