//! The command line: words to values, values to output, results to exit codes. One file a subcommand.

mod doctor;
mod events;
mod exit;
mod explain;
mod find;
mod force;
mod item;
mod limits;
mod options;
mod output;
mod pause;
mod reap;
mod replay;
mod run;
mod scan;
mod sweep;
mod version;

use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kernel::share_heap;

pub use exit::Status;

/// Finds container cgroups that leaked, proves it, and reaps exactly those.
///
/// Without a daemon, `scan`, `explain`, `reap` and `doctor` work by themselves. Nothing is touched unless you say
/// `reap`, `sweep`, or `run --mode enforce`.
#[derive(Debug, Parser)]
#[command(
    name = "cgroup-reaper",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 success or no leaks, 1 error, 2 usage, 3 leaks found, 4 refused by a guard, \
                  5 reap failed, 7 environment unsupported.\n\nStart with `cgroup-reaper doctor`, then \
                  `cgroup-reaper scan`."
)]
pub struct Cli {
    /// Log more; -v for decisions, -vv for every look
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// How log lines look on stderr
    #[arg(long, global = true, value_enum, default_value_t, env = "CGROUP_REAPER_LOG_FORMAT")]
    log_format: output::LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the node; reap what leaked if --mode enforce
    Run(run::Args),
    /// List leaks
    #[command(visible_alias = "ls")]
    Scan(scan::Args),
    /// Say why something is or is not a leak, and what would be done
    Explain(explain::Args),
    /// Show kernel events of containers and runtimes as they happen
    Events(events::Args),
    /// Reap leaks now, through the same guards
    Reap(reap::Args),
    /// Stop acting, with a reason, until `resume` or for some time; the daemon and `reap` obey
    Pause(pause::PauseArgs),
    /// Act again: ends a pause, releases a storm, and goes on after harm that somebody has looked into
    Resume(pause::ResumeArgs),
    /// Judge a recorded trace anew; touches and asks nothing on this node
    Replay(replay::Args),
    /// Before containerd starts: reap what only dead shims left, within a time limit
    Sweep(sweep::Args),
    /// Check kernel, cgroups, probes, permissions and sockets, with a remedy for each problem
    Doctor(doctor::Args),
    /// Print the version
    Version(version::Args),
}

/// Runs one command and says how it ended.
///
/// # Errors
/// What went wrong, with its causes; exit code 1.
pub fn main(cli: Cli) -> anyhow::Result<Status> {
    let daemon = matches!(cli.command, Command::Run(_));
    output::start_logging(cli.log_format, cli.verbose, daemon);
    raise_open_files();
    share_heap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(args).await,
            Command::Scan(args) => scan::run(args).await,
            Command::Explain(args) => explain::run(args).await,
            Command::Events(args) => events::run(args).await,
            Command::Reap(args) => reap::run(args).await,
            Command::Pause(args) => pause::pause(args),
            Command::Resume(args) => pause::resume(&args),
            Command::Replay(args) => replay::run(args).await,
            Command::Sweep(args) => sweep::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Version(args) => version::run(&args),
        }
    })
}

/// Each cgroup that is held takes a descriptor, and the usual soft limit of 1,024 is for programs that use `select`.
/// Where it cannot be raised the node is looked at with what there is.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
        raise_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
