//! What goes to stdout and stderr, and how.

use std::io::{IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// Format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Table,
    /// For programs: one object with an apiVersion
    Json,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// One line an event
    #[default]
    Text,
    /// One JSON object an event
    Json,
}

/// Results go to stdout, everything else to stderr; with times where the lines are kept, which a daemon's are.
pub(super) fn start_logging(format: LogFormat, verbose: u8, daemon: bool) {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        2.. => "trace",
    };
    let filter = EnvFilter::try_from_env("CGROUP_REAPER_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,reaper_userspace={level}")));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false);
    // A second call (a test) keeps the first one's logging.
    let started = match format {
        LogFormat::Text if daemon => builder.try_init(),
        LogFormat::Text => builder.without_time().try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(error, "logging is already set up");
    }
}

/// Prints text; a reader that closed the pipe is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints one value as JSON.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A table without lines, as kubectl and crictl print them.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header.to_vec());
    table.add_rows(rows);
    let text = table.to_string();
    text.lines().fold(String::new(), |text, line| text + line.trim() + "\n")
}
