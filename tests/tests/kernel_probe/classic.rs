//! The classic programs: what they can know is right, and what they cannot know is left out.

use reaper_userspace::event::{Act, Event, Occurrence};
use reaper_userspace::probe::Level;

use crate::bench::{self, Cgroup, Hier, Process, attached_at, key_of, until};
use crate::{about, concerns, life};

/// What happened to this number, in order.
fn acts(events: &[Event], pid: u32) -> Vec<Act> {
    let act = |event: &Event| match event.what {
        Occurrence::Unidentified { act, tgid, .. } => (tgid.get() == pid).then_some(act),
        Occurrence::Forked { .. }
        | Occurrence::Execed { .. }
        | Occurrence::Exited { .. }
        | Occurrence::Killed { .. } => {
            panic!("a classic program cannot know this: {event:?}")
        }
        Occurrence::CgroupMade { .. }
        | Occurrence::CgroupRemoved { .. }
        | Occurrence::CgroupPopulated { .. }
        | Occurrence::CgroupFrozen { .. } => None,
    };
    events.iter().filter_map(act).collect()
}

fn ended(events: &[Event], pid: u32) -> bool {
    acts(events, pid).contains(&Act::Exited)
}

fn attached() -> bench::Attached {
    attached_at(Level::Classic)
}

/// The life of a cgroup that a runtime makes; it is tracked by who made it.
async fn is_born_filled_emptied_and_removed_in_this_order(hierarchy: &Hier, name: &str) {
    let root = Cgroup::make(hierarchy, name);
    let mut probe = attached();
    let path = root.path().join("child");
    let script = format!("mkdir {p}; read go; rmdir {p}; exit 0", p = path.display());
    // Shells run mkdir in a process of its own, which a watched runtime's descendants are.
    let mut runtime = Process::named("runc", &script);
    let made = until(&mut probe, |events| events.iter().any(|event| is_made(event, runtime.pid()))).await;
    let child = root.found("child");
    let sleeper = Process::sleeper();
    child.add(&sleeper);
    drop(sleeper);
    let mut events = made;
    events.extend(until(&mut probe, |events| life(events, child.id()).contains(&"empty")).await);
    runtime.say("go");
    drop(runtime);
    events.extend(until(&mut probe, |events| life(events, child.id()).contains(&"removed")).await);
    assert_eq!(life(&events, child.id()), ["made", "populated", "empty", "removed"]);
    let nothing: [&str; 0] = [];
    assert_eq!(life(&events, root.id()), nothing, "nobody asked for it");
    let parent = events.iter().find_map(|event| {
        let Occurrence::CgroupMade { cgroup, parent, level, .. } = event.what else { return None };
        (cgroup == child.id()).then_some((parent, level))
    });
    assert_eq!(parent, Some((None, 2)));
}

fn is_made(event: &Event, by: u32) -> bool {
    matches!(event.what, Occurrence::CgroupMade { maker, .. } if maker.comm.as_bytes() == b"mkdir"
        || maker.tgid.is_some_and(|tgid| tgid.get() == by))
}

#[tokio::test]
async fn the_life_of_a_v2_cgroup_made_by_a_runtime_is_reported_in_order() {
    is_born_filled_emptied_and_removed_in_this_order(&Hier::v2(), "classic2").await;
}

#[tokio::test]
async fn the_life_of_a_v1_cgroup_made_by_a_runtime_is_reported_in_order() {
    is_born_filled_emptied_and_removed_in_this_order(&Hier::v1(), "classic1").await;
}

#[tokio::test]
async fn what_others_make_is_left_out_and_what_is_tracked_is_reported() {
    let root = Cgroup::make(&Hier::v2(), "classic-mine");
    let mut probe = attached();
    probe.track(root.id()).unwrap();
    let child = root.child("child");
    let sleeper = Process::sleeper();
    child.add(&sleeper);
    root.write("cgroup.freeze", "1");
    let mut events = until(&mut probe, |events| life(events, root.id()).contains(&"frozen")).await;
    root.write("cgroup.freeze", "0");
    drop(sleeper);
    events.extend(until(&mut probe, |events| life(events, root.id()).contains(&"empty")).await);
    assert_eq!(life(&events, root.id()), ["populated", "frozen", "thawed", "empty"]);
    let nothing: [&str; 0] = [];
    assert_eq!(life(&events, child.id()), nothing);
}

#[tokio::test]
async fn the_processes_of_a_watched_one_are_reported_by_number_and_identified_while_they_live() {
    let mut probe = attached();
    let mut shell = Process::shell("read go; sleep 60 & echo $!; read go; kill $!; wait; exit 3");
    let key = shell.key();
    probe.watch(key).unwrap();
    shell.say("go");
    let child = key_of(shell.hear().parse().unwrap());
    let (pid, child_pid) = (key.tgid.get(), child.tgid.get());
    let born = until(&mut probe, |events| acts(events, child_pid).contains(&Act::Execed)).await;
    let start_of = |tgid| [key, child].into_iter().find(|known| known.tgid == tgid).map(|known| known.start);
    let known =
        born.iter().filter(|event| concerns(event, child_pid)).map(|event| event.identified(start_of).what);
    let known: Vec<_> = known.collect();
    assert!(
        matches!(known.as_slice(), [
            Occurrence::Forked { creator, child: made, .. },
            Occurrence::Execed { process, comm, .. },
        ] if *creator == key && *made == child && *process == child && comm.as_bytes() == b"sleep"),
        "{known:?}"
    );
    shell.say("go");
    let rest = until(&mut probe, |events| ended(events, pid)).await;
    assert_eq!((acts(&rest, child_pid), acts(&rest, pid)), (vec![Act::Exited], vec![Act::Exited]));
}

#[tokio::test]
async fn threads_are_no_processes_and_the_last_one_is_the_end() {
    let mut probe = attached();
    let leaderless = Process::leaderless();
    let key = leaderless.key();
    // Its first thread has ended and cannot be the one that is waited for.
    probe.watch(key).unwrap();
    drop(leaderless);
    let events = until(&mut probe, |events| ended(events, key.tgid.get())).await;
    assert_eq!(acts(&events, key.tgid.get()), [Act::Exited]);
}

#[tokio::test]
async fn a_number_that_is_given_out_anew_does_not_inherit_the_watch() {
    let mut probe = attached();
    let first = Process::shell("read go");
    let key = first.key();
    drop(first);
    // What a lost exit record leaves behind.
    probe.watch(key).unwrap();
    let mut second = Process::shell_with_pid("read go; sleep 0; exit 9", key.tgid.get());
    assert_eq!(second.pid(), key.tgid.get());
    second.say("go");
    drop(second);
    let mut last = Process::shell("read go; exit 2");
    probe.watch(last.key()).unwrap();
    last.say("go");
    let events = until(&mut probe, |events| ended(events, last.pid())).await;
    assert_eq!(about(&events, key.tgid.get()), []);
}

#[tokio::test]
async fn a_program_named_like_a_runtime_is_watched_from_its_exec_on() {
    let mut probe = attached();
    for name in ["runc", "crun", "youki", "containerd-shim-runc-v2"] {
        let runtime = Process::named(name, "sleep 0; exit 6");
        let pid = runtime.pid();
        let events = until(&mut probe, |events| ended(events, pid)).await;
        let born = events.iter().filter(|event| bench::is_birth_by(event, pid)).count();
        assert_eq!((acts(&events, pid), born), (vec![Act::Execed, Act::Exited], 1), "{name}");
    }
}

#[tokio::test]
async fn a_fork_storm_is_reported_whole_and_leaves_room_for_the_next() {
    const FORKS: usize = 4_200;
    let mut probe = attached();
    let script = format!("read go; i=0; while [ $i -lt {FORKS} ]; do i=$((i+1)); (:); done; exit 1");
    let mut shell = Process::shell(&script);
    let pid = shell.pid();
    probe.watch(shell.key()).unwrap();
    shell.say("go");
    let events = until(&mut probe, |events| ended(events, pid)).await;
    let is = |event: &&Event, wanted: Act| matches!(event.what, Occurrence::Unidentified { act, .. } if act == wanted);
    let count = |wanted| events.iter().filter(|event| is(event, wanted)).count();
    assert!(count(Act::Forked) >= FORKS && count(Act::Exited) >= FORKS, "{} births", count(Act::Forked));
    assert_eq!(probe.losses().unwrap().total(), 0);
}
