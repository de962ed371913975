//! procfs on the running kernel: incarnations, reuse of a number, exited leaders, odd names.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "fixtures make and end real processes")]

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use reaper_userspace::fact::{ProcessState, RuntimeRole};
use reaper_userspace::ident::{CgroupPath, Hierarchy, Lookup, ProcessKey, StartTicks, Tgid};
use reaper_userspace::procfs::{
    PidHandle, alive, all, ancestors, cgroup_of, read, runtime_processes, start_of, wait_channel,
};
use reaper_userspace::time::BootTime;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::CapabilitySet;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// A child that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn sleeper() -> Self {
        Self::start(Command::new("sleep").arg("1000"))
    }

    fn tgid(&self) -> Tgid {
        Tgid::new(self.0.id().into()).unwrap()
    }

    fn key(&self) -> ProcessKey {
        ProcessKey { tgid: self.tgid(), start: found(start_of(self.tgid())) }
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[track_caller]
fn found<T>(answer: Lookup<T>) -> T {
    match answer {
        Lookup::Found(value) => value,
        Lookup::NotFound => panic!("not found"),
        Lookup::Unavailable(reason) => panic!("{reason}"),
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn in_ms(millis: u64) -> BootTime {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
    BootTime::from_nanos(u64::try_from(now.as_nanos()).unwrap()).after(Duration::from_millis(millis))
}

/// Starts processes until one has this number; tests that force numbers exclude each other.
fn reuse(tgid: Tgid) -> Process {
    let lock = fs::File::create(std::env::temp_dir().join("reaper-test-ns-last-pid.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let last = tgid.get().checked_sub(1).unwrap().to_string();
    for _ in 0..1000 {
        fs::write("/proc/sys/kernel/ns_last_pid", &last).unwrap();
        let process = Process::sleeper();
        if process.tgid() == tgid {
            return process;
        }
    }
    panic!("others took number {tgid} a thousand times");
}

#[test]
fn our_own_process_is_read_as_it_is() {
    let own = Tgid::new(std::process::id().into()).unwrap();
    let fact = found(read(own));
    assert_eq!(fact.exe, Some(std::env::current_exe().unwrap()));
    assert_eq!(fact.argv, std::env::args().collect::<Vec<_>>());
    assert_eq!(fact.parent, Tgid::new(std::os::unix::process::parent_id().into()));
    assert_eq!((fact.key.start, fact.kernel_thread), (found(start_of(own)), false));
    assert_eq!(alive(fact.key), Lookup::Found(true));
}

#[test]
fn a_program_with_an_odd_name_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("a) Z 1\n(b");
    fs::copy("/bin/sleep", &program).unwrap();
    let process = Process::start(Command::new(&program).arg0("").arg("1000"));
    eventually("argv is set", || found(read(process.tgid())).argv == ["", "1000"]);
    fs::remove_file(&program).unwrap();
    let fact = found(read(process.tgid()));
    assert_eq!(fact.comm, "a) Z 1\n(b");
    assert_eq!(fact.parent.map(Tgid::get), Some(std::process::id()));
    assert_ne!(fact.state, ProcessState::Zombie);
    assert_eq!(fact.exe.unwrap().to_str(), Some(format!("{} (deleted)", program.display()).as_str()));
}

#[test]
fn a_long_command_line_is_cut() {
    let mut tail = Command::new("tail");
    tail.args(["-q", "-f"]).args(vec!["/dev/null"; 1000]).stdout(Stdio::null());
    let process = Process::start(&mut tail);
    eventually("exec is done", || found(read(process.tgid())).argv.len() == 256);
}

#[test]
fn every_process_is_listed_once_with_its_ancestors() {
    let process = Process::sleeper();
    let facts = all().unwrap();
    let listed = facts.iter().filter(|fact| fact.key == process.key()).count();
    assert_eq!(listed, 1);
    assert!(facts.iter().any(|fact| fact.key.tgid == Tgid::INIT));
    let above = found(ancestors(&[found(read(process.tgid()))], &read));
    assert!(above.iter().any(|fact| fact.key.tgid.get() == std::process::id()));
    assert!(above.iter().any(|fact| fact.parent.is_none()), "up to a process without parent");
    assert!(above.iter().all(|fact| fact.key != process.key()));
}

#[test]
fn a_reaped_process_is_not_found_and_a_zombie_is() {
    let mut process = Process::sleeper();
    let key = process.key();
    process.0.kill().unwrap();
    eventually("zombie", || found(read(key.tgid)).state == ProcessState::Zombie);
    let fact = found(read(key.tgid));
    assert_eq!((fact.key, fact.exe, fact.argv.len()), (key, None, 0));
    assert_eq!(alive(key), Lookup::Found(false));
    let handle = found(PidHandle::open(key));
    assert_eq!(handle.is_attached(), Lookup::Found(true), "a zombie keeps its number");
    process.0.wait().unwrap();
    assert!(start_of(key.tgid).is_not_found());
    assert!(read(key.tgid).is_not_found());
    assert!(cgroup_of(key.tgid, Hierarchy::UNIFIED).is_not_found());
    assert!(wait_channel(key.tgid).is_not_found());
    assert_eq!(alive(key), Lookup::Found(false));
    assert!(PidHandle::open(key).is_not_found());
    assert_eq!(handle.is_attached(), Lookup::Found(false));
}

#[test]
fn a_hidden_process_is_not_taken_for_a_missing_one() {
    let process = Process::sleeper();
    let key = process.key();
    // This thread alone gets a /proc that hides what it may not trace, and loses the right to trace.
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), Some("hidepid=invisible,gid=4711")).unwrap();
    let mut capabilities = rustix::thread::capabilities(None).unwrap();
    capabilities.effective.remove(CapabilitySet::SYS_PTRACE);
    rustix::thread::set_capabilities(None, capabilities).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", key.tgid)).exists(), "it is hidden");
    let hidden = |reason: &String| reason.contains("hidden");
    assert!(start_of(key.tgid).unavailable().is_some_and(hidden));
    assert!(alive(key).unavailable().is_some_and(hidden));
    assert!(PidHandle::open(key).unavailable().is_some_and(hidden));
    assert!(all().unwrap_err().to_string().contains("hidden"));
}

#[test]
fn a_reused_number_is_another_process() {
    let mut first = Process::sleeper();
    let old = first.key();
    let held = found(PidHandle::open(old));
    first.end();
    // Until the next tick both would have the same start time.
    std::thread::sleep(Duration::from_millis(20));
    let second = reuse(old.tgid);
    let new = second.key();
    assert_eq!((new.tgid, new.start > old.start), (old.tgid, true));
    assert!(PidHandle::open(old).is_not_found());
    assert_eq!(held.is_attached(), Lookup::Found(false));
    assert_eq!(alive(old), Lookup::Found(false));
    assert_eq!(alive(new), Lookup::Found(true));
    assert!(pidfd_send_signal(held.as_fd(), Signal::KILL).is_err(), "the old handle reaches nobody");
    assert_eq!(found(PidHandle::open(new)).is_attached(), Lookup::Found(true));
}

#[test]
fn a_number_that_became_a_thread_is_no_process() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _stopped = wait.recv();
        });
        let tgid = Tgid::new(receiver.recv().unwrap().into()).unwrap();
        let old = ProcessKey { tgid, start: StartTicks::from_ticks(1) };
        assert!(PidHandle::open(old).is_not_found());
        assert_eq!(alive(old), Lookup::Found(false));
        drop(stop);
    });
}

/// As the number of an init that died is: its children are still of its session.
#[test]
fn a_number_that_is_only_a_groups_is_no_process() {
    let script = "exec 3<&0; cat <&3 >/dev/null & echo; wait";
    let mut leader = Process::start(
        Command::new("sh").args(["-c", script]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()),
    );
    let _until_the_end = leader.0.stdin.take();
    std::io::Read::read_exact(&mut leader.0.stdout.take().unwrap(), &mut [0]).unwrap();
    let key = leader.key();
    leader.end();
    let group = rustix::process::Pid::from_raw(i32::try_from(key.tgid.get()).unwrap()).unwrap();
    assert!(rustix::process::test_kill_process_group(group).is_ok(), "the group lives on");
    assert_eq!(alive(key), Lookup::Found(false));
    assert!(read(key.tgid).is_not_found());
    assert!(PidHandle::open(key).is_not_found());
}

#[test]
fn the_wait_for_an_exit_has_a_deadline() {
    let process = Process::sleeper();
    let handle = found(PidHandle::open(process.key()));
    assert_eq!(handle.poll_exit(in_ms(20)), Lookup::Found(false));
    pidfd_send_signal(handle.as_fd(), Signal::KILL).unwrap();
    assert_eq!(handle.poll_exit(in_ms(5000)), Lookup::Found(true));
}

#[test]
fn a_process_whose_leader_has_exited_is_alive() {
    let (_dir, mut program) = compile(
        "#include <pthread.h>\n#include <unistd.h>\nstatic void *f(void *a) { for (;;) pause(); return a; }\n\
         int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_exit(0); }",
    );
    let process = Process::start(&mut program);
    eventually("zombie leader", || found(read(process.tgid())).state == ProcessState::Zombie);
    assert_eq!(alive(process.key()), Lookup::Found(true));
    let handle = found(PidHandle::open(process.key()));
    assert_eq!(handle.poll_exit(in_ms(20)), Lookup::Found(false));
}

/// Builds a C program: what it does to its own threads is beyond safe Rust.
fn compile(source: &str) -> (TempDir, Command) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.c"), source).unwrap();
    let mut cc = Command::new("cc");
    assert!(cc.args(["-pthread", "-o", "a.out", "a.c"]).current_dir(dir.path()).status().unwrap().success());
    let program = Command::new(dir.path().join("a.out"));
    (dir, program)
}

#[test]
fn memberships_are_told_by_hierarchy() {
    let own = Tgid::new(std::process::id().into()).unwrap();
    let text = fs::read_to_string("/proc/self/cgroup").unwrap();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let hierarchy = Hierarchy(fields.next().unwrap().parse().unwrap());
        let path = CgroupPath::try_from(fields.nth(1).unwrap()).unwrap();
        assert_eq!(cgroup_of(own, hierarchy), Lookup::Found(path));
    }
    assert!(cgroup_of(own, Hierarchy(9999)).is_not_found());
}

#[test]
fn a_sleeping_process_tells_where_it_waits() {
    let process = Process::sleeper();
    eventually("asleep in nanosleep", || {
        wait_channel(process.tgid()).found().is_some_and(|channel| channel.contains("nanosleep"))
    });
}

#[test]
fn a_wrapper_script_that_creates_a_container_is_a_command_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let wrapper = dir.path().join("runc-wrapper");
    fs::write(&wrapper, "#!/bin/sh\nsleep 1000 &\nwait\n").unwrap();
    let process = Process::start(Command::new("sh").arg(&wrapper).args(["create", "reaper-test-id"]));
    let is_ours = |fact: &&reaper_userspace::fact::RuntimeProcess| fact.process.key.tgid == process.tgid();
    eventually("seen as a command", || {
        let facts = all().unwrap();
        runtime_processes(&facts).iter().find(is_ours).map(|found| found.role.clone())
            == Some(RuntimeRole::Command { verb: "create".to_owned() })
    });
    // The shell's child ends too.
    let facts = all().unwrap();
    for child in facts.iter().filter(|fact| fact.parent == Some(process.tgid())) {
        let handle = found(PidHandle::open(child.key));
        pidfd_send_signal(handle.as_fd(), Signal::KILL).unwrap();
    }
}
