//! The kernel, and which probes work on it. Tested by use, never by version.

use std::fs::File;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::system::uname;

use super::check::Check;
use crate::kernel::{chain, read_path};
use crate::probe::{self, Probe};

const BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const LOCKDOWN_LIMIT: u64 = 256;

pub(super) fn all() -> Vec<Check> {
    vec![kernel(), btf(), lockdown(), probes()]
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
    let remedy =
        "use a kernel with CONFIG_DEBUG_INFO_BTF; without it the daemon only looks from time to time";
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
fn probes() -> Check {
    let remedy = "grant BPF and PERFMON, or accept that leaks are seen only when --interval is over";
    let Some(object) = probe::embedded() else {
        let remedy = "build it with `cargo xtask build`; until then the daemon only looks from time to time";
        return Check::warning("probes", "level poll: this binary has no BPF object", remedy);
    };
    match Probe::load(object) {
        Ok(probe) => Check::ok("probes", format!("level {}: loaded, attached and checked", probe.level())),
        Err(error) => {
            // The verifier's last words are several lines.
            let reason = chain(&error).split_whitespace().collect::<Vec<_>>().join(" ");
            Check::warning("probes", format!("level poll: {reason}"), remedy)
        }
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
}
