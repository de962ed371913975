//! The kernel, and which probes work on it. Tested by use, never by version.

use std::fs::File;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::system::uname;

use super::check::Check;
use crate::kernel::{chain, read_path};
use crate::probe::{self, Guard, GuardError, Level, Probe, ProbeError};

const BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const LOCKDOWN_LIMIT: u64 = 256;

pub(super) fn all() -> Vec<Check> {
    let mut checks = vec![kernel(), btf(), lockdown()];
    checks.extend(probes());
    checks
}

fn kernel() -> Check {
    let name = uname();
    let seen = format!("Linux {} {}", name.release().to_string_lossy(), name.machine().to_string_lossy());
    let own: Pid = getpid();
    match pidfd_open(own, PidfdFlags::empty()) {
        Ok(_) => Check::ok("kernel", seen),
        Err(errno) => {
            let remedy = "use Linux 5.6 or later: processes are killed through pidfds only";
            Check::problem("kernel", format!("{seen}, without pidfds: {errno}"), remedy)
        }
    }
}

fn btf() -> Check {
    let remedy = "use a kernel with CONFIG_DEBUG_INFO_BTF; without it the probes are of level classic, which needs tracefs";
    match File::open(BTF).and_then(|file| file.metadata()) {
        Ok(metadata) => Check::ok("btf", format!("{BTF}, {} KiB", metadata.len() >> 10)),
        Err(error) => Check::warning("btf", format!("{BTF}: {error}"), remedy),
    }
}

fn lockdown() -> Check {
    match read_path(LOCKDOWN, LOCKDOWN_LIMIT) {
        Ok(text) => judge_lockdown(chosen(&String::from_utf8_lossy(&text))),
        Err(error) if error.errno() == Some(Errno::NOENT) => {
            Check::ok("lockdown", "not shown: the kernel has none, or securityfs is not mounted")
        }
        Err(error) => Check::ok("lockdown", format!("not known: {}", chain(&error))),
    }
}

/// The mode in brackets: `none [integrity] confidentiality` (`security/lockdown/lockdown.c`).
fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|mode| mode.strip_prefix('[')?.strip_suffix(']'))
}

/// `confidentiality` forbids BPF programs to read the kernel (`LOCKDOWN_BPF_READ_KERNEL`).
fn judge_lockdown(mode: Option<&str>) -> Check {
    match mode {
        Some("confidentiality") => Check::warning(
            "lockdown",
            "confidentiality: programs that read the kernel are refused",
            "expect probe level poll, or boot with lockdown=integrity",
        ),
        Some(mode) => Check::ok("lockdown", mode),
        None => Check::ok("lockdown", "not known: the file names no mode"),
    }
}

/// Really loads and attaches the programs, which also checks what they read; they are gone when this returns.
fn probes() -> Vec<Check> {
    let Some(object) = probe::embedded() else {
        let remedy = "build it with `cargo xtask build`; until then the daemon only looks from time to time";
        return vec![Check::warning("probes", "level poll: this binary has no BPF object", remedy)];
    };
    let (mut probe, failed) = Probe::first_of(&Level::ALL, object);
    let level = probe.as_ref().map(|(probe, _)| probe.level());
    let guard = probe.as_mut().map(|(probe, _)| judge_guard(&probe.take_guard()));
    std::iter::once(judge_probes(level, &failed)).chain(guard).collect()
}

/// One more safety, and no condition: nothing has to be done where there is none.
fn judge_guard(guard: &Result<Guard, GuardError>) -> Check {
    match guard {
        Ok(_) => {
            Check::ok("rmdir_guard", "the kernel refuses the removal of any other cgroup than the meant one")
        }
        Err(error) => {
            Check::ok("rmdir_guard", format!("none, the look before a removal is all: {}", chain(error)))
        }
    }
}

/// The level, and for each better one why not.
fn judge_probes(level: Option<Level>, failed: &[(Level, ProbeError)]) -> Check {
    // The verifier's last words are several lines.
    let one_line = |error| chain(error).split_whitespace().collect::<Vec<_>>().join(" ");
    let why_not = failed
        .iter()
        .fold(String::new(), |text, (level, error)| text + &format!("; not {level}: {}", one_line(error)));
    let name = level.map_or_else(|| "poll".to_owned(), |level| level.to_string());
    match level {
        Some(Level::Btf) => Check::ok("probes", format!("level {name}: loaded, attached and checked")),
        Some(Level::Classic) => Check::warning(
            "probes",
            format!("level {name}: loaded, attached and checked{why_not}"),
            "nothing has to be done: leaks are seen as soon; how a killed create ended is not",
        ),
        None => Check::warning(
            "probes",
            format!("level {name}{why_not}"),
            "grant BPF and PERFMON, or mount tracefs where the kernel has no BTF; else leaks are seen only when \
             --interval is over",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn of_the_lockdown_modes_the_one_in_brackets_counts() {
        assert_eq!(chosen("none [integrity] confidentiality\n"), Some("integrity"));
        assert_eq!(chosen("none integrity\n"), None);
        assert_eq!(judge_lockdown(Some("integrity")).state(), State::Ok);
        assert_eq!(judge_lockdown(Some("confidentiality")).state(), State::Warning);
        assert_eq!(judge_lockdown(None).state(), State::Ok);
    }

    #[test]
    fn the_level_in_use_is_named_and_why_a_better_one_is_not() {
        assert_eq!(judge_probes(Some(Level::Btf), &[]).state(), State::Ok);
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let mut failed = vec![(Level::Btf, ProbeError::ReadBtf { path: BTF, source })];
        let classic = judge_probes(Some(Level::Classic), &failed);
        assert_eq!(classic.state(), State::Warning);
        assert!(
            classic
                .seen()
                .starts_with("level classic: loaded, attached and checked; not btf: cannot read /sys")
        );
        failed.push((Level::Classic, ProbeError::NoTracefs));
        let poll = judge_probes(None, &failed);
        assert!(poll.seen().starts_with("level poll; not btf: "), "{}", poll.seen());
        assert!(poll.seen().ends_with("; not classic: tracefs is not mounted at /sys/kernel/tracing"));
    }
}
