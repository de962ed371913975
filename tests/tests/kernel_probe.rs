//! The probes on the running kernel: what is reported, in which order, and what is not.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "the tests make and remove what is observed")]

#[path = "kernel_probe/bench.rs"]
mod bench;
#[path = "kernel_probe/classic.rs"]
mod classic;
#[path = "kernel_probe/guard.rs"]
mod guard;
#[path = "kernel_probe/reuse.rs"]
mod reuse;

use std::time::Duration;

use bench::{Cgroup, Hier, Process, attached, key_of, until};
use reaper_userspace::event::{Event, Occurrence};
use reaper_userspace::ident::{CgroupId, CgroupRef, ProcessKey, Tgid};
use reaper_userspace::probe::{Level, Loss, Probe, ProbeError};

/// What happened to one cgroup, as words.
fn life(events: &[Event], wanted: CgroupRef) -> Vec<&'static str> {
    let word = |event: &Event| {
        let (cgroup, word) = match event.what {
            Occurrence::CgroupMade { cgroup, .. } => (cgroup, "made"),
            Occurrence::CgroupRemoved { cgroup, .. } => (cgroup, "removed"),
            Occurrence::CgroupPopulated { cgroup, populated: true } => (cgroup, "populated"),
            Occurrence::CgroupPopulated { cgroup, populated: false } => (cgroup, "empty"),
            Occurrence::CgroupFrozen { cgroup, frozen: true } => (cgroup, "frozen"),
            Occurrence::CgroupFrozen { cgroup, frozen: false } => (cgroup, "thawed"),
            Occurrence::Forked { .. }
            | Occurrence::Execed { .. }
            | Occurrence::Exited { .. }
            | Occurrence::Killed { .. }
            | Occurrence::Unidentified { .. } => return None,
        };
        (cgroup == wanted).then_some(word)
    };
    events.iter().filter_map(word).collect()
}

/// Whether an event is about this process number in any role.
fn concerns(event: &Event, pid: u32) -> bool {
    match event.what {
        Occurrence::Forked { creator, child, .. } => creator.tgid.get() == pid || child.tgid.get() == pid,
        Occurrence::Execed { process, .. } | Occurrence::Exited { process, .. } => process.tgid.get() == pid,
        Occurrence::Unidentified { tgid, creator, .. } => {
            tgid.get() == pid || creator.is_some_and(|creator| creator.get() == pid)
        }
        // The bench ends its processes itself: its own signals are no part of their lives.
        Occurrence::Killed { .. }
        | Occurrence::CgroupMade { .. }
        | Occurrence::CgroupRemoved { .. }
        | Occurrence::CgroupPopulated { .. }
        | Occurrence::CgroupFrozen { .. } => false,
    }
}

/// What was reported about this process number.
fn about(events: &[Event], pid: u32) -> Vec<Occurrence> {
    events.iter().filter(|event| concerns(event, pid)).map(|event| event.what).collect()
}

/// The process that this one made, if that is what happened.
fn child_of(event: &Event, wanted: ProcessKey) -> Option<ProcessKey> {
    let Occurrence::Forked { creator, child, .. } = event.what else { return None };
    (creator == wanted).then_some(child)
}

fn exited(events: &[Event], pid: u32) -> bool {
    events.iter().any(|e| concerns(e, pid) && matches!(e.what, Occurrence::Exited { .. }))
}

async fn is_born_filled_emptied_and_removed_in_this_order(hierarchy: &Hier, name: &str) {
    let root = Cgroup::make(hierarchy, name);
    let mut probe = attached();
    probe.track(root.id()).unwrap();
    let child = root.child("child");
    let id = child.id();
    let sleeper = Process::sleeper();
    child.add(&sleeper);
    drop(sleeper);
    drop(child);

    let events = until(&mut probe, |events| life(events, id).contains(&"removed")).await;
    assert_eq!(life(&events, id), ["made", "populated", "empty", "removed"]);
    assert_eq!(life(&events, root.id()), ["populated", "empty"]);
    let maker = events.iter().find_map(|event| {
        let Occurrence::CgroupMade { cgroup, parent, level, maker } = event.what else { return None };
        (cgroup == id).then_some((parent.unwrap(), level, maker.tgid.unwrap().get()))
    });
    assert_eq!(maker, Some((root.id().id, 2, std::process::id())));
    assert!(events.is_sorted_by_key(|event| event.at), "batches are in order of time");
}

#[tokio::test]
async fn the_life_of_a_v2_cgroup_is_reported_in_order() {
    is_born_filled_emptied_and_removed_in_this_order(&Hier::v2(), "life2").await;
}

#[tokio::test]
async fn the_life_of_a_v1_cgroup_is_reported_in_order() {
    let v1 = Hier::v1();
    assert_ne!(v1.id, 0);
    is_born_filled_emptied_and_removed_in_this_order(&v1, "life1").await;
}

#[tokio::test]
async fn freezing_and_thawing_a_v2_cgroup_is_reported() {
    let root = Cgroup::make(&Hier::v2(), "freeze");
    let mut probe = attached();
    let sleeper = Process::sleeper();
    root.add(&sleeper);
    probe.track(root.id()).unwrap();
    root.write("cgroup.freeze", "1");
    let mut events = until(&mut probe, |events| life(events, root.id()).contains(&"frozen")).await;
    root.write("cgroup.freeze", "0");
    events.extend(until(&mut probe, |events| life(events, root.id()).contains(&"thawed")).await);
    assert_eq!(life(&events, root.id()), ["frozen", "thawed"]);
}

#[tokio::test]
async fn grandchildren_of_a_tracked_cgroup_are_tracked() {
    let root = Cgroup::make(&Hier::v2(), "deep");
    let mut probe = attached();
    probe.track(root.id()).unwrap();
    let child = root.child("a");
    let grandchild = child.child("b");
    let (top, leaf) = (child.id(), grandchild.id());
    let great = grandchild.child("c");
    let deepest = great.id();
    drop((great, grandchild, child));
    let events = until(&mut probe, |events| life(events, top).contains(&"removed")).await;
    for id in [deepest, leaf, top] {
        assert_eq!(life(&events, id), ["made", "removed"]);
    }
}

#[tokio::test]
async fn cgroups_that_are_not_below_a_tracked_one_give_nothing() {
    let (tracked, other) = (Cgroup::make(&Hier::v2(), "mine"), Cgroup::make(&Hier::v2(), "other"));
    let mut probe = attached();
    probe.track(tracked.id()).unwrap();
    let stranger = other.child("child");
    let stranger_id = stranger.id();
    let sleeper = Process::sleeper();
    stranger.add(&sleeper);
    drop((sleeper, stranger));

    let forgotten = tracked.child("forgotten");
    let forgotten_id = forgotten.id();
    probe.untrack(forgotten_id).unwrap();
    probe.untrack(forgotten_id).unwrap();
    drop(forgotten);

    let last = tracked.child("last").id();
    let events = until(&mut probe, |events| life(events, last).contains(&"removed")).await;
    assert_eq!(life(&events, forgotten_id), ["made"]);
    let nothing: [&str; 0] = [];
    assert_eq!(life(&events, stranger_id), nothing);
    assert_eq!(life(&events, other.id()), nothing);
}

#[tokio::test]
async fn the_same_id_in_another_hierarchy_is_another_cgroup() {
    let root = Cgroup::make(&Hier::v2(), "alias");
    let mut probe = attached();
    let elsewhere = CgroupRef { hierarchy: Hier::v1().hierarchy(), id: root.id().id };
    probe.track(elsewhere).unwrap();
    let child = root.child("child").id();
    probe.track(root.id()).unwrap();
    let last = root.child("last").id();
    let events = until(&mut probe, |events| life(events, last).contains(&"removed")).await;
    assert_eq!(life(&events, child), [""; 0]);
}

#[tokio::test]
async fn tidying_the_filter_forgets_no_watched_process_and_keeps_strangers_out() {
    let mut probe = attached();
    let mut shells: Vec<Process> = (0..20).map(|_| Process::shell("read go; sleep 0")).collect();
    for shell in &shells {
        probe.watch(shell.key()).unwrap();
    }
    let mut stranger = Process::shell("read go; sleep 0");
    let pid = stranger.pid();
    probe.tidy().unwrap();
    stranger.say("go");
    drop(stranger);
    for shell in &mut shells {
        shell.say("go");
    }
    let pids: Vec<u32> = shells.iter().map(Process::pid).collect();
    let events = until(&mut probe, |events| pids.iter().all(|pid| exited(events, *pid))).await;
    assert_eq!(about(&events, pid), []);
    for pid in pids {
        assert_eq!(about(&events, pid).len(), 2, "a fork and its end");
    }
}

#[tokio::test]
async fn a_filter_that_is_tidied_without_pause_loses_nothing() {
    const FORKS: usize = 2_000;
    let mut probe = attached();
    let script = format!("read go; i=0; while [ $i -lt {FORKS} ]; do i=$((i+1)); (:); done; exit 1");
    let mut shell = Process::shell(&script);
    let key = shell.key();
    probe.watch(key).unwrap();
    shell.say("go");
    let mut events = vec![];
    let gather = async {
        while !exited(&events, key.tgid.get()) {
            probe.tidy().unwrap();
            let batch = tokio::time::timeout(Duration::from_millis(1), probe.next_batch()).await;
            events.extend(batch.into_iter().flat_map(Result::unwrap));
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gather).await.expect("the end of the storm");
    let made: Vec<_> = events.iter().filter_map(|event| child_of(event, key)).collect();
    let ended = made.iter().filter(|child| exited(&events, child.tgid.get())).count();
    assert_eq!((made.len(), ended), (FORKS, FORKS));
}

#[tokio::test]
async fn the_processes_of_a_watched_one_are_reported_with_their_true_start() {
    let mut probe = attached();
    let mut shell = Process::shell("read go; sleep 60 & echo $!; read go; kill $!; wait; exit 3");
    let key = shell.key();
    probe.watch(key).unwrap();
    shell.say("go");
    let child = key_of(shell.hear().parse().unwrap());
    bench::wait_for_name(child.tgid.get(), "sleep");
    shell.say("go");

    let pid = key.tgid.get();
    let events = until(&mut probe, |events| exited(events, pid)).await;
    let family: Vec<_> =
        events.iter().filter(|e| concerns(e, pid) || concerns(e, child.tgid.get())).map(|e| e.what).collect();
    let [fork, exec, child_end, end] = family.as_slice() else { panic!("{family:?}") };
    assert!(
        matches!(fork, Occurrence::Forked { creator, child: made, .. } if *creator == key && *made == child)
    );
    assert!(
        matches!(exec, Occurrence::Execed { process, comm, .. } if *process == child && comm.as_bytes() == b"sleep")
    );
    assert!(matches!(child_end, Occurrence::Exited { process, status: Some(15), .. } if *process == child));
    assert!(matches!(end, Occurrence::Exited { process, status: Some(0x300), .. } if *process == key));
}

#[tokio::test]
async fn what_a_container_does_by_itself_is_not_reported() {
    let mut probe = attached();
    let mut shell = Process::shell("read go; sh -c 'sleep 0; sleep 0; sleep 0; exit 4'; exit 5");
    let key = shell.key();
    probe.watch(key).unwrap();
    shell.say("go");
    let events = until(&mut probe, |events| exited(events, key.tgid.get())).await;
    let made: Vec<_> = events.iter().filter_map(|event| child_of(event, key)).collect();
    let [inner] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!(events.iter().find_map(|event| child_of(event, *inner)), None);
    assert!(exited(&events, inner.tgid.get()));
}

#[tokio::test]
async fn each_process_of_a_fork_storm_is_reported_once_and_leaves_room_for_the_next() {
    const FORKS: usize = 4_200;
    let mut probe = attached();
    let script = format!("read go; i=0; while [ $i -lt {FORKS} ]; do i=$((i+1)); (:); done; exit 1");
    let mut shell = Process::shell(&script);
    let key = shell.key();
    probe.watch(key).unwrap();
    shell.say("go");
    let events = until(&mut probe, |events| exited(events, key.tgid.get())).await;
    let made: Vec<_> = events.iter().filter_map(|event| child_of(event, key)).collect();
    let ended = events.iter().filter_map(|event| {
        let Occurrence::Exited { process, .. } = event.what else { return None };
        (process != key && made.contains(&process)).then_some(process)
    });
    assert_eq!((made.len(), ended.count()), (FORKS, FORKS));
    assert_eq!(probe.losses().unwrap().total(), 0);
}

#[tokio::test]
async fn a_program_named_like_a_runtime_is_watched_from_its_exec_on() {
    let mut probe = attached();
    for name in ["runc", "crun", "youki", "containerd-shim-runc-v2"] {
        let runtime = Process::named(name, "sleep 0; exit 6");
        let pid = runtime.pid();
        let events = until(&mut probe, |events| exited(events, pid)).await;
        let own: Vec<_> =
            events.iter().filter(|event| concerns(event, pid)).map(|event| event.what).collect();
        let short = &name.as_bytes()[..name.len().min(15)];
        assert!(
            matches!(own.as_slice(), [
                Occurrence::Execed { comm, .. },
                Occurrence::Forked { .. },
                Occurrence::Exited { status: Some(0x600), .. }
            ] if comm.as_bytes() == short),
            "{own:?}"
        );
    }
}

#[tokio::test]
async fn the_end_of_a_process_without_its_leader_is_reported_once_and_by_its_number() {
    let mut probe = attached();
    let leaderless = Process::leaderless();
    let key = leaderless.key();
    probe.watch(key).unwrap();
    drop(leaderless);
    let events = until(&mut probe, |events| exited(events, key.tgid.get())).await;
    let own = about(&events, key.tgid.get());
    let [Occurrence::Exited { process, status, .. }] = own.as_slice() else { panic!("{own:?}") };
    assert_eq!((*process, *status), (key, Some(7 << 8)));
}

#[tokio::test]
async fn a_reused_number_does_not_inherit_the_watch() {
    let mut probe = attached();
    let first = Process::shell("read go");
    let key = first.key();
    drop(first);
    // What a lost exit record leaves behind.
    probe.watch(key).unwrap();
    let mut second = Process::shell_with_pid("read go; sleep 0; exit 9", key.tgid.get());
    assert_eq!(second.pid(), key.tgid.get());
    assert_ne!(second.key(), key);
    second.say("go");
    drop(second);

    let mut last = Process::shell("read go; exit 2");
    probe.watch(last.key()).unwrap();
    last.say("go");
    let events = until(&mut probe, |events| exited(events, last.pid())).await;
    assert_eq!(about(&events, key.tgid.get()), []);
}

#[tokio::test]
async fn an_unwatched_process_gives_nothing() {
    let mut probe = attached();
    let mut shell = Process::shell("read go; sleep 0");
    let key = shell.key();
    probe.watch(key).unwrap();
    probe.unwatch(key).unwrap();
    probe.unwatch(key).unwrap();
    shell.say("go");
    drop(shell);
    let mut last = Process::shell("read go");
    probe.watch(last.key()).unwrap();
    last.say("go");
    let events = until(&mut probe, |events| exited(events, last.pid())).await;
    assert_eq!(about(&events, key.tgid.get()), []);
}

#[tokio::test]
async fn what_a_full_ring_loses_is_counted_exactly() {
    const ROUNDS: u64 = 2_500;
    let root = Cgroup::make(&Hier::v2(), "storm");
    let mut probe = attached();
    probe.track(root.id()).unwrap();
    assert_eq!(probe.losses().unwrap().total(), 0);
    for _ in 0..ROUNDS {
        drop(root.child("x"));
    }
    let unseen = root.child("unseen").id();
    let lost = probe.losses().unwrap();
    let missing = [Loss::Mkdir, Loss::Rmdir, Loss::Skipped].map(|loss| lost.get(loss)).iter().sum::<u64>();
    assert!(missing > 0, "{lost:?}");

    // The ring is full: what happened to `unseen` is lost as well, so drain before the marker.
    let mut events = until(&mut probe, |events| events.len() > 700).await;
    let marker = root.child("marker").id();
    events.extend(until(&mut probe, |events| life(events, marker).contains(&"removed")).await);
    assert_eq!(life(&events, unseen), [""; 0]);
    let of_cgroups = |what| matches!(what, Occurrence::CgroupMade { .. } | Occurrence::CgroupRemoved { .. });
    let received = events.iter().filter(|event| of_cgroups(event.what)).count();
    assert_eq!(u64::try_from(received).unwrap() + missing, 2 * (ROUNDS + 2));
}

#[tokio::test]
async fn what_the_kernel_made_known_is_not_new() {
    let root = Cgroup::make(&Hier::v2(), "known");
    let mut probe = attached();
    assert!(probe.track(root.id()).unwrap());
    assert!(!probe.track(root.id()).unwrap());
    let child = root.child("child");
    assert!(!probe.track(child.id()).unwrap(), "made below a tracked one");
    assert!(probe.watch(Process::sleeper().key()).unwrap());
    let mut runtime = Process::named("runc", "echo; read go");
    runtime.hear();
    assert!(!probe.watch(runtime.key()).unwrap(), "seen by its exec");
}

#[tokio::test]
async fn a_cgroup_that_a_full_map_takes_no_more_is_counted() {
    let root = Cgroup::make(&Hier::v2(), "full");
    let mut probe = attached();
    probe.track(root.id()).unwrap();
    let hierarchy = reaper_userspace::ident::Hierarchy(u32::MAX);
    let strangers = (1..).map(|id| CgroupRef { hierarchy, id: CgroupId(id) });
    let refused = strangers.take(100_000).find_map(|cgroup| probe.track(cgroup).err());
    assert!(matches!(refused, Some(ProbeError::Track { .. })), "{refused:?}");
    drop(root.child("child"));
    let lost = probe.losses().unwrap();
    assert_eq!(lost.get(Loss::TrackedFull), 1);
}

#[tokio::test]
async fn a_process_that_a_full_map_takes_no_more_is_counted() {
    let mut probe = attached();
    let mut shell = Process::shell("read go; (:); exit 0");
    probe.watch(shell.key()).unwrap();
    // Above the largest number that the kernel gives out (`PID_MAX_LIMIT`).
    let strangers = (1 << 23..).filter_map(Tgid::new).map(|tgid| ProcessKey { tgid, ..shell.key() });
    let refused = strangers.take(10_000).find_map(|process| probe.watch(process).err());
    assert!(matches!(refused, Some(ProbeError::Watch { .. })), "{refused:?}");
    shell.say("go");
    drop(shell);
    assert!(probe.losses().unwrap().get(Loss::WatchFull) >= 1);
}

#[tokio::test]
async fn a_batch_is_waited_for_and_a_cancelled_wait_loses_nothing() {
    let root = Cgroup::make(&Hier::v2(), "cancel");
    let mut probe = attached();
    probe.track(root.id()).unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(20), until(&mut probe, |_| false)).await;
    assert!(waited.is_err(), "nothing of ours to report");
    let child = root.child("child").id();
    let events = until(&mut probe, |events| life(events, child).contains(&"removed")).await;
    assert_eq!(life(&events, child), ["made", "removed"]);
}

/// The object with every `exit` made a load from nowhere (`struct bpf_insn`, eight bytes each).
fn broken_object() -> Vec<u8> {
    let mut object = bench::object();
    for insn in object.chunks_exact_mut(8).filter(|insn| **insn == [0x95, 0, 0, 0, 0, 0, 0, 0]) {
        insn.copy_from_slice(&[0x79, 0x90, 0, 0, 0, 0, 0, 0]);
    }
    object
}

#[tokio::test]
async fn a_program_that_the_verifier_refuses_is_named_with_its_last_words() {
    let refused = Probe::load(&broken_object(), Level::Btf).unwrap_err();
    let ProbeError::Refused { program, log, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(*program, "self_check");
    assert!(!log.is_empty() && log.lines().count() <= 12, "{log}");
    assert!(refused.to_string().contains("self_check") && refused.to_string().contains(log), "{refused}");
}

#[test]
fn without_a_runtime_or_an_object_there_is_no_probe() {
    assert!(matches!(Probe::load(&[], Level::Btf), Err(ProbeError::Runtime)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    assert!(matches!(Probe::load(b"not an object", Level::Btf), Err(ProbeError::Object(_))));
}

#[tokio::test]
async fn what_this_process_kills_is_told_by_incarnation_and_nobody_elses_signals_are() {
    let mut probe = attached();
    let [ours, ended, theirs] =
        [(); 3].map(|()| std::process::Command::new("sleep").arg("1000").spawn().unwrap());
    let [mut ours, mut ended, mut theirs] = [ours, ended, theirs];
    let key = key_of(ours.id());
    let signal = |child: &std::process::Child, signal| {
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    };
    signal(&ended, nix::sys::signal::Signal::SIGTERM);
    let by_another = std::process::Command::new("kill").args(["-KILL", &theirs.id().to_string()]).status();
    assert!(by_another.unwrap().success());
    signal(&ours, nix::sys::signal::Signal::SIGKILL);
    let killed = |event: &Event| {
        let Occurrence::Killed { process, .. } = event.what else { return None };
        Some(process)
    };
    let events = until(&mut probe, |events| events.iter().any(|event| killed(event).is_some())).await;
    let told: Vec<ProcessKey> = events.iter().filter_map(killed).collect();
    assert_eq!(told, [key]);
    for child in [&mut ours, &mut ended, &mut theirs] {
        child.wait().unwrap();
    }
}
