//! A bystander that the daemon kills is seen by the kernel, counted, and ends all acting.
//!
//! The daemon runs inside of this process, so that what a hook of the test does in the middle of an act is done by the
//! daemon as far as the kernel can tell.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "the hook kills, which is what the test is about")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use reaper_tests::{CgroupView, Containerd, Crash, Node, Reaper, read_audit, wait_until};
use reaper_userspace::cli::{self, Cli};
use reaper_userspace::reap::hook::{self, Point};

const SOON: Duration = Duration::from_mins(1);

struct Bystander(Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn series(address: &str, series: &str) -> Result<u64> {
    let page = get(address, "/metrics")?;
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.with_context(|| format!("no {series}"))?.parse().context("a number")
}

#[test]
fn a_bystander_that_was_killed_is_counted_and_ends_all_acting() -> Result<()> {
    let containerd = Containerd::start(Node::new(CgroupView::V2)?)?;
    let reaper = Reaper::from_env(&containerd)?;
    let leaks =
        [containerd.crash("one", Crash::FrozenCreate)?, containerd.crash("two", Crash::FrozenCreate)?];
    let bystander = Bystander(Command::new("sleep").arg("1000").spawn()?);
    let victim = Pid::from_raw(i32::try_from(bystander.0.id())?);
    let done = AtomicBool::new(false);
    hook::install(move |point| {
        if point == Point::Signal && !done.swap(true, Ordering::Relaxed) {
            kill(victim, Signal::SIGKILL).unwrap();
        }
    });

    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let audit = reaper.audit_log().display().to_string();
    let words = ["run", "--mode", "enforce", "--grace", "1s", "--interval", "300ms", "--probes", "btf"];
    let more = ["--metrics-listen", &address, "--audit-log", &audit];
    let command = reaper.command(&[&words[..], &more].concat());
    let args: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let cli = Cli::try_parse_from(args)?;
    let daemon = std::thread::spawn(move || cli::main(cli));

    let harmed = || {
        anyhow::ensure!(!daemon.is_finished(), "the daemon ended by itself; was the BPF object built?");
        Ok(series(&address, "cgroup_reaper_bystander_kills_total").is_ok_and(|count| count > 0))
    };
    wait_until("a bystander that is counted", SOON, harmed)?;
    hook::uninstall();
    let paused = || Ok(series(&address, "cgroup_reaper_paused{by=\"bystander\"}")? == 1);
    wait_until("a pause that is shown", SOON, paused)?;
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(series(&address, "cgroup_reaper_bystander_kills_total")?, 1);
    assert_eq!(series(&address, "cgroup_reaper_enforcing")?, 0);
    let ready = get(&address, "/readyz?verbose")?;
    let told = format!("the kernel saw us kill process {victim}");
    assert!(ready.contains(" 503 ") && ready.contains(&told), "{ready}");
    let standing: Vec<bool> =
        leaks.iter().map(|leak| leak.is_gone().map(|gone| !gone)).collect::<Result<_>>()?;
    assert_eq!(standing.iter().filter(|standing| **standing).count(), 1, "one act, and no other");
    raise(Signal::SIGTERM)?;
    daemon.join().unwrap()?;

    drop(bystander);
    let pause = read_audit(&reaper.audit_log())?.into_iter().find(|record| record["type"] == "pause");
    let pause = pause.context("no record of it")?;
    assert!(pause["hold"] == "bystander" && pause["reason"].as_str().unwrap().contains(&told), "{pause}");
    let refused = reaper.reap(&["--all"])?;
    assert!(refused.code == Some(4) && refused.stdout.contains(&told), "by hand neither: {refused:?}");
    Ok(())
}
