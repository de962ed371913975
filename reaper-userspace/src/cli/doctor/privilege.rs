//! What this process may do, and whether it is where it can see the host's processes.
//!
//! Judged from values that are read once, so that every case can be tested.
//!
//! # Kernel facts
//! `fs/proc/array.c:task_cap` writes `CapEff` as 16 hexadecimal digits; bits are those of `linux/capability.h`.
//! The initial namespaces have fixed inode numbers (`linux/proc_ns.h`).

use std::fs;

use super::check::Check;
use crate::fact::{ProcessFact, ProcessState};
use crate::ident::Tgid;
use crate::kernel::{chain, read_path};
use crate::procfs;

const STATUS: &str = "/proc/self/status";
const STATUS_LIMIT: u64 = 64 << 10;
const PROCESSES_REMEDY: &str = "run it as root with SYS_PTRACE, and mount /proc without hidepid";
const INITIAL_PID: &str = "pid:[4026531836]";
const INITIAL_USER: &str = "user:[4026531837]";

/// A capability and what fails without it.
struct Capability {
    bit: u32,
    name: &'static str,
    for_what: &'static str,
}

const NEEDED: [Capability; 7] = [
    Capability { bit: 1, name: "DAC_OVERRIDE", for_what: "cgroups and bundles that others own" },
    Capability { bit: 5, name: "KILL", for_what: "killing processes of other users" },
    Capability { bit: 18, name: "SYS_CHROOT", for_what: "entering containerd's mount namespace" },
    Capability { bit: 19, name: "SYS_PTRACE", for_what: "telling which program a process runs" },
    Capability { bit: 21, name: "SYS_ADMIN", for_what: "unmounting a leaked rootfs" },
    Capability { bit: 38, name: "PERFMON", for_what: "the probes" },
    Capability { bit: 39, name: "BPF", for_what: "the probes" },
];

/// What `/proc/self` says about privileges and namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    uid: u32,
    capabilities: u64,
    /// Our number in each PID namespace that we are in, the reader's first.
    pids: Vec<String>,
    pid_namespace: String,
    user_namespace: String,
}

pub(super) fn all() -> Vec<Check> {
    match read() {
        Ok(standing) => vec![privileges(&standing), pid_namespace(&standing), processes()],
        Err(seen) => vec![Check::problem("privileges", seen, "mount proc at /proc")],
    }
}

fn read() -> Result<Standing, String> {
    let status = read_path(STATUS, STATUS_LIMIT).map_err(|error| chain(&error))?;
    let link = |path: &str| {
        let target = fs::read_link(path).map_err(|error| format!("read {path}: {error}"))?;
        Ok::<_, String>(target.to_string_lossy().into_owned())
    };
    let (pid, user) = (link("/proc/self/ns/pid")?, link("/proc/self/ns/user")?);
    parse(&String::from_utf8_lossy(&status), pid, user)
        .ok_or_else(|| format!("{STATUS} is not what kernels write"))
}

fn parse(status: &str, pid_namespace: String, user_namespace: String) -> Option<Standing> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Some(Standing {
        // Real, effective, saved, file system.
        uid: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
        capabilities: u64::from_str_radix(field("CapEff")?.trim(), 16).ok()?,
        pids: field("NSpid")?.split_whitespace().map(str::to_owned).collect(),
        pid_namespace,
        user_namespace,
    })
}

fn privileges(standing: &Standing) -> Check {
    const NAME: &str = "privileges";
    if standing.uid != 0 {
        return Check::problem(NAME, format!("user id {}, not root", standing.uid), "run it as root");
    }
    if standing.user_namespace != INITIAL_USER {
        let seen = format!("root of a user namespace only ({})", standing.user_namespace);
        return Check::problem(NAME, seen, "run it as the host's root, without a user namespace");
    }
    let (has, lacks): (Vec<&Capability>, Vec<&Capability>) =
        NEEDED.iter().partition(|needed| has(standing.capabilities, needed.bit));
    if lacks.is_empty() {
        let names: Vec<&str> = has.iter().map(|capability| capability.name).collect();
        return Check::ok(NAME, format!("root, with {}", names.join(" ")));
    }
    let lacks: Vec<String> = lacks.iter().map(|one| format!("{} ({})", one.name, one.for_what)).collect();
    Check::warning(NAME, format!("root, without {}", lacks.join(", ")), "grant these capabilities")
}

const fn has(capabilities: u64, bit: u32) -> bool {
    matches!(capabilities.checked_shr(bit), Some(shifted) if shifted & 1 == 1)
}

fn pid_namespace(standing: &Standing) -> Check {
    const NAME: &str = "pid_namespace";
    if standing.pid_namespace == INITIAL_PID && standing.pids.len() == 1 {
        return Check::ok(NAME, "the host's");
    }
    let seen =
        format!("{}, our numbers in it and below: {}", standing.pid_namespace, standing.pids.join(" "));
    Check::problem(NAME, seen, "run it in the host's PID namespace (hostPID: true, or --pid=host)")
}

/// By doing it: `hidepid`, a foreign `/proc` and missing capabilities all show here.
fn processes() -> Check {
    match procfs::all() {
        Ok(all) => judge_processes(&all),
        Err(error) => Check::problem("processes", chain(&error), PROCESSES_REMEDY),
    }
}

/// A security module may hide the programs of a few whatever we may do; of most, only a lack of privilege does.
fn judge_processes(all: &[ProcessFact]) -> Check {
    let ended = |process: &&ProcessFact| matches!(process.state, ProcessState::Zombie | ProcessState::Dead);
    let with_program = all.iter().filter(|process| !process.kernel_thread && !ended(process));
    let (seen, hidden): (Vec<_>, Vec<_>) = with_program.partition(|process| process.exe.is_some());
    let init = all.iter().find(|process| process.key.tgid == Tgid::INIT);
    let init = init.map_or("unknown", |process| process.comm.as_str()).escape_debug();
    let text = format!("{} seen, the programs of {} hidden; process 1 is {init}", all.len(), hidden.len());
    if hidden.len() > seen.len() {
        return Check::problem("processes", text, PROCESSES_REMEDY);
    }
    Check::ok("processes", text)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::check::State;
    use super::*;
    use crate::fact::sample;

    const ALL: u64 = 0x0000_01ff_ffff_ffff;

    fn root() -> Standing {
        let status = "Name:\tx\nUid:\t0\t0\t0\t0\nNSpid:\t7\nCapEff:\t000001ffffffffff\n";
        parse(status, INITIAL_PID.to_owned(), INITIAL_USER.to_owned()).unwrap()
    }

    #[test]
    fn the_effective_user_and_capabilities_are_read() {
        let status = "Uid:\t1000\t7\t1000\t1000\nNSpid:\t4711\t3\nCapPrm:\tff\nCapEff:\t0000008000000020\n";
        let standing = parse(status, "pid:[1]".to_owned(), "user:[2]".to_owned()).unwrap();
        assert_eq!((standing.uid, standing.capabilities), (7, 1 << 39 | 1 << 5));
        assert_eq!(standing.pids, ["4711", "3"]);
        assert_eq!(parse("Uid:\t0\nNSpid:\t1\nCapEff:\t0\n", String::new(), String::new()), None);
    }

    #[test]
    fn a_missing_capability_is_named_with_what_it_is_for() {
        assert_eq!(privileges(&root()).state(), State::Ok);
        for needed in &NEEDED {
            let check = privileges(&Standing { capabilities: ALL & !(1 << needed.bit), ..root() });
            assert_eq!(check.state(), State::Warning, "{}", needed.name);
            let want = format!("root, without {} ({})", needed.name, needed.for_what);
            assert_eq!(check.seen(), want);
        }
    }

    #[test]
    fn who_is_not_root_of_the_host_cannot_work() {
        assert_eq!(privileges(&Standing { uid: 65_534, ..root() }).state(), State::Problem);
        let inside = Standing { user_namespace: "user:[4026532001]".to_owned(), ..root() };
        assert_eq!(privileges(&inside).state(), State::Problem);
    }

    #[test]
    fn hidden_programs_are_a_problem_when_most_are() {
        let process = |tgid, exe: Option<&str>| ProcessFact {
            key: sample::key(tgid, 1),
            exe: exe.map(PathBuf::from),
            ..sample::workload()
        };
        let mut all = vec![process(1, None), process(2, Some("/bin/a")), process(3, None)];
        assert_eq!(judge_processes(&all).state(), State::Problem);
        all[2].state = ProcessState::Zombie;
        assert_eq!(judge_processes(&all).state(), State::Ok);
    }

    #[test]
    fn a_pid_namespace_of_its_own_is_a_problem() {
        assert_eq!(pid_namespace(&root()).state(), State::Ok);
        let foreign = Standing { pid_namespace: "pid:[4026532001]".to_owned(), ..root() };
        assert_eq!(pid_namespace(&foreign).state(), State::Problem);
        let nested = Standing { pids: vec!["7".to_owned(), "1".to_owned()], ..root() };
        assert_eq!(pid_namespace(&nested).state(), State::Problem);
    }
}
