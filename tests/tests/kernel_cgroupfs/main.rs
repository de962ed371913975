//! cgroupfs on the running kernel: the v1 freezer hierarchy and cgroup v2, both mounted privately, so that the
//! same tests run on v1, hybrid and v2 nodes.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "fixtures make and end real cgroups, processes and mounts")]

mod fixture;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::time::Duration;

use fixture::{Node, Scratch, any_start, compile, eventually, found, in_ms, state, wait_channel};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use reaper_userspace::cgroupfs::{
    CgroupControl as _, Child, HierarchyMount, Layout, LayoutMode, LayoutWarning, Reopened,
};
use reaper_userspace::fact::{Controllers, Freeze};
use reaper_userspace::ident::{CgroupPath, Hierarchy, Lookup, StartTicks, Tgid};

#[test]
fn every_hierarchy_of_the_machine_is_found_once_with_its_number() {
    let layout = Layout::discover(&[]).unwrap();
    let lines = fs::read_to_string("/proc/self/cgroup").unwrap();
    let mut numbers = Vec::new();
    for mount in layout.hierarchies() {
        numbers.push(mount.hierarchy());
        let line = format!("{}:{}:", mount.hierarchy().0, mount.name());
        assert!(lines.lines().any(|l| l.starts_with(&line)), "{line} in {lines}");
        assert!(mount.open(&CgroupPath::root()).found().is_some(), "{}", mount.path().display());
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
    assert!(count > 0);
}

#[test]
fn a_root_may_be_a_directory_of_hierarchies_or_one_of_them() {
    let node = Node::enter();
    assert_eq!(node.layout().mode(), LayoutMode::Hybrid);
    let one = |name| Layout::discover(&[node.root.path().join(name)]).unwrap();
    let (v1, v2) = (one("freezer"), one("unified"));
    assert_eq!((v1.mode(), v2.mode()), (LayoutMode::V1, LayoutMode::V2));
    assert_eq!(v1.hierarchies()[0].controllers(), Controllers::Freezer);
    assert_eq!(v2.hierarchies()[0].hierarchy(), Hierarchy::UNIFIED);
}

#[test]
fn a_second_mount_of_a_hierarchy_and_a_hidden_mount_add_nothing() {
    let node = Node::enter();
    let again = node.root.path().join("again");
    fs::create_dir(&again).unwrap();
    mount(Some("cgroup"), &again, Some("cgroup2"), MsFlags::empty(), None::<&str>).unwrap();
    let freezer = node.root.path().join("freezer");
    for hiding in ["tmpfs", "cgroup2"] {
        mount(Some("hiding"), &freezer, Some(hiding), MsFlags::empty(), None::<&str>).unwrap();
        let layout = node.layout();
        let numbers: Vec<_> = layout.hierarchies().iter().map(HierarchyMount::hierarchy).collect();
        umount2(&freezer, MntFlags::MNT_DETACH).unwrap();
        assert_eq!(numbers, [Hierarchy::UNIFIED], "{hiding}");
    }
    umount2(&again, MntFlags::MNT_DETACH).unwrap();
}

#[test]
fn a_private_cgroup_namespace_is_a_warning() {
    let node = Node::enter();
    let layout = Layout::discover(&[node.root.path().join("freezer")]).unwrap();
    let scratch = Scratch::new(&layout.hierarchies()[0]);
    let tid = rustix::thread::gettid().as_raw_nonzero().to_string();
    scratch.write("tasks", &tid);
    unshare(CloneFlags::CLONE_NEWCGROUP).unwrap();
    let warnings = node.layout().warnings().to_vec();
    fs::write(node.root.path().join("freezer/tasks"), &tid).unwrap();
    let namespaced =
        |w: &LayoutWarning| matches!(w, LayoutWarning::Namespaced { file: "/proc/1/cgroup", .. });
    assert!(warnings.iter().any(namespaced), "{warnings:?}");
}

#[test]
fn only_a_missing_directory_is_not_found() {
    let node = Node::enter();
    for hierarchy in node.layout().hierarchies() {
        let scratch = Scratch::new(hierarchy);
        assert!(hierarchy.open(&scratch.path("missing")).is_not_found());
        assert!(hierarchy.open(&scratch.path("cgroup.procs")).unavailable().is_some(), "a file");
        let covered = scratch.mkdir("covered");
        mount(Some("t"), &scratch.dir("covered"), Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let answer = hierarchy.open(&scratch.path("covered"));
        umount2(&scratch.dir("covered"), MntFlags::MNT_DETACH).unwrap();
        assert!(answer.unavailable().is_some_and(|reason| reason.contains("covered")), "{answer:?}");
        assert_eq!(covered.members(), Lookup::Found(vec![]));
    }
}

#[test]
fn a_recreated_path_is_another_cgroup() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let scratch = Scratch::new(mount);
        let first = scratch.mkdir("leaf");
        assert!(matches!(mount.reopen(first.path(), first.cgroup()), Reopened::Same(_)));
        fs::remove_dir(scratch.dir("leaf")).unwrap();
        assert!(matches!(mount.reopen(first.path(), first.cgroup()), Reopened::Gone));
        let second = scratch.mkdir("leaf");
        assert_ne!(first.cgroup(), second.cgroup());
        let reopened = mount.reopen(first.path(), first.cgroup());
        assert!(matches!(reopened, Reopened::OtherCgroup(found) if found == second.cgroup()), "{reopened:?}");
        let parent = scratch.open("");
        let child = parent.doomed(OsStr::new("leaf"), first.cgroup()).unwrap();
        assert!(matches!(child, Child::Other(found) if found == second.cgroup()), "{child:?}");
        assert_eq!(second.members(), Lookup::Found(vec![]), "the successor lives");
    }
}

#[test]
fn the_directory_of_a_removed_cgroup_never_reaches_its_successor() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let first = scratch.mkdir("leaf");
        let watch = first.watch();
        fs::remove_dir(scratch.dir("leaf")).unwrap();
        scratch.mkdir("leaf");
        scratch.sleeper("leaf");
        assert!(first.members().is_not_found());
        assert!(first.populated().is_not_found());
        assert!(first.freeze_state().is_not_found());
        assert!(first.frozen_from_above().is_not_found());
        assert!(first.children().is_not_found());
        assert!(first.watch().is_not_found());
        assert!(first.freeze().unwrap_err().is_gone());
        assert!(matches!(first.doomed(OsStr::new("x"), first.cgroup()), Ok(Child::Gone)));
        if let Lookup::Found(watch) = watch {
            assert!(watch.await_unpopulated(in_ms(1000)).is_not_found());
        }
    }
}

#[test]
fn what_a_hierarchy_lacks_is_not_taken_for_a_missing_cgroup() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let root = found(mount.open(&CgroupPath::root()));
        assert_eq!(root.freeze_state(), Lookup::Found(Freeze::None));
        let watch = Scratch::new(mount).open("").watch();
        assert_eq!(watch.found().is_some(), mount.controllers() == Controllers::Unified);
        assert!(!watch.is_not_found());
    }
}

#[test]
fn a_leaf_without_processes_is_populated_through_its_children() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        scratch.mkdir("init");
        scratch.mkdir("init/deeper");
        let tgid = scratch.sleeper("init/deeper");
        let tree = found(mount.tree(&scratch.path(""), &any_start));
        let shape: Vec<_> =
            tree.nodes.iter().map(|n| (n.path.clone(), n.members.found().unwrap().len())).collect();
        let expected = [("", 0), ("init", 0), ("init/deeper", 1)].map(|(path, n)| (scratch.path(path), n));
        assert_eq!(shape, expected);
        assert_eq!(tree.populated, Lookup::Found(true));
        assert!(tree.lists(tgid));
        scratch.end_processes();
        eventually("unpopulated after the end", || {
            let tree = found(mount.tree(&scratch.path(""), &any_start));
            tree.populated == Lookup::Found(false) && tree.members().count() == 0
        });
    }
}

#[test]
fn a_vanished_member_is_left_out_and_an_unknown_one_spoils_the_list() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        scratch.sleeper("");
        let members = |start_of: &dyn Fn(Tgid) -> Lookup<StartTicks>| {
            found(mount.tree(&scratch.path(""), start_of)).nodes[0].members.clone()
        };
        assert_eq!(members(&|_| Lookup::NotFound), Lookup::Found(vec![]));
        let unknown = || "no start time".to_owned();
        assert_eq!(members(&|_| Lookup::Unavailable(unknown())), Lookup::Unavailable(unknown()));
    }
}

#[test]
fn a_member_outside_our_pid_namespace_is_no_answer_on_v2_and_a_warning_on_v1() {
    const ROOT: &str = "REAPER_TEST_ROOT";
    const PATH: &str = "REAPER_TEST_PATH";
    if let (Some(root), Ok(path)) = (std::env::var_os(ROOT), std::env::var(PATH)) {
        // The second run of this test: in a PID namespace that does not show the member.
        let layout = Layout::discover(&[root.into()]).unwrap();
        let dir = found(layout.hierarchies()[0].open(&CgroupPath::try_from(path.as_str()).unwrap()));
        if dir.controllers() == Controllers::Unified {
            assert!(dir.members().unavailable().is_some_and(|reason| reason.contains("PID namespace")));
            assert_eq!(dir.populated(), Lookup::Found(true));
        } else {
            assert_eq!(dir.members(), Lookup::Found(vec![]), "v1 leaves them out");
        }
        assert!(layout.warnings().contains(&LayoutWarning::PidNamespace), "{:?}", layout.warnings());
        return;
    }
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        scratch.sleeper("");
        let name = std::thread::current().name().unwrap().to_owned();
        let inside = Command::new("unshare")
            .args(["--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &name])
            .env(ROOT, mount.path())
            .env(PATH, scratch.path("").as_path())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&inside.stdout);
        assert!(inside.status.success() && output.contains("1 passed"), "{output}");
    }
}

#[test]
fn a_child_that_vanishes_during_the_walk_is_left_out() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        scratch.mkdir("child");
        scratch.sleeper("");
        let vanish = |_| {
            let _gone = fs::remove_dir(scratch.dir("child"));
            Lookup::Found(StartTicks::from_ticks(1))
        };
        let tree = found(mount.tree(&scratch.path(""), &vanish));
        assert_eq!((tree.nodes.len(), tree.unanswered()), (1, None));
        assert!(mount.tree(&scratch.path("child"), &any_start).is_not_found());
    }
}

#[test]
fn a_threaded_cgroup_is_answered_by_its_domain_alone() {
    let node = Node::enter();
    let layout = node.layout();
    let mut scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    let threaded = scratch.mkdir("threaded");
    scratch.write("threaded/cgroup.type", "threaded");
    let tgid = scratch.sleeper("");
    scratch.write("threaded/cgroup.threads", &tgid.to_string());
    assert!(threaded.members().unavailable().is_some());
    assert_eq!(threaded.populated(), Lookup::Found(true));
    let tree = found(scratch.mount.tree(&scratch.path(""), &any_start));
    assert_eq!(tree.populated, Lookup::Found(true));
    assert_eq!(tree.unanswered(), None, "{tree:?}");
    assert!(tree.lists(tgid), "the domain lists it");
    let alone = found(scratch.mount.tree(&scratch.path("threaded"), &any_start));
    assert!(alone.unanswered().is_some_and(|reason| reason.contains("cgroup.procs")), "{alone:?}");
}

#[test]
fn a_freeze_shows_in_the_cgroup_and_below_it() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let child = scratch.mkdir("child");
        scratch.sleeper("child");
        let parent = scratch.open("");
        let states = || (found(parent.freeze_state()), found(child.freeze_state()));
        assert_eq!(states(), (Freeze::Thawed, Freeze::Thawed));
        parent.freeze().unwrap();
        eventually("frozen", || states() == (Freeze::Frozen, Freeze::Frozen));
        assert_eq!(parent.frozen_from_above(), Lookup::Found(false));
        assert_eq!(child.frozen_from_above(), Lookup::Found(true));
        child.thaw().unwrap();
        assert_eq!(child.freeze_state(), Lookup::Found(Freeze::Frozen), "an ancestor holds it");
        parent.thaw().unwrap();
        eventually("thawed", || states() == (Freeze::Thawed, Freeze::Thawed));
    }
}

#[test]
fn a_task_that_does_not_stop_keeps_the_cgroup_freezing() {
    let node = Node::enter();
    let layout = node.layout();
    let mut scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    // A filesystem whose server never answers: its callers can be killed but not stopped.
    let server = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let target = node.root.path().join("mute");
    fs::create_dir(&target).unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    mount(Some("mute"), &target, Some("fuse"), MsFlags::empty(), Some(options.as_str())).unwrap();
    let caller = scratch.run("", Command::new("stat").arg(target.join("file")));
    eventually("the caller waits for the server", || wait_channel(caller).contains("fuse"));
    let dir = scratch.open("");
    dir.freeze().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let seen = dir.freeze_state();
    drop(server);
    umount2(&target, MntFlags::MNT_DETACH).unwrap();
    assert_eq!(seen, Lookup::Found(Freeze::Freezing));
}

#[test]
fn a_process_whose_leader_has_exited_is_listed_and_populated() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let (_dir, mut program) = compile(
            "#include <pthread.h>\n#include <unistd.h>\nstatic void *f(void *a) { for (;;) pause(); return a; }\n\
             int main(void) { pthread_t t; usleep(100000); pthread_create(&t, 0, f, 0); pthread_exit(0); }",
        );
        let tgid = scratch.run("", &mut program);
        eventually("the leader is a zombie", || state(tgid) == "Z");
        let tree = found(mount.tree(&scratch.path(""), &any_start));
        assert!(tree.lists(tgid));
        assert_eq!(tree.populated, Lookup::Found(true));
    }
}

#[test]
fn a_removal_is_busy_then_done_then_already_gone() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let mut scratch = Scratch::new(mount);
        let leaf = scratch.mkdir("leaf");
        scratch.sleeper("leaf");
        let parent = scratch.open("");
        let doomed = || match parent.doomed(OsStr::new("leaf"), leaf.cgroup()) {
            Ok(Child::Same(doomed)) => doomed,
            other => panic!("{other:?}"),
        };
        assert!(doomed().remove().unwrap_err().is_busy());
        scratch.end_processes();
        let late = doomed();
        eventually("removed", || doomed().remove().is_ok_and(|removed| removed));
        assert!(!late.remove().unwrap(), "somebody was faster");
        assert!(matches!(parent.doomed(OsStr::new("leaf"), leaf.cgroup()), Ok(Child::Gone)));
    }
}

#[test]
fn the_wait_ends_with_the_last_process_or_with_the_deadline() {
    let node = Node::enter();
    let layout = node.layout();
    let mut scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    scratch.mkdir("child");
    scratch.sleeper("child");
    let dir = scratch.open("");
    let watch = found(dir.watch());
    assert_eq!(watch.await_unpopulated(in_ms(20)), Lookup::Found(false));
    scratch.end_processes();
    assert_eq!(watch.await_unpopulated(in_ms(5000)), Lookup::Found(true));
}

#[test]
fn a_tree_that_is_too_deep_is_no_answer() {
    let node = Node::enter();
    let layout = node.layout();
    let scratch = Scratch::new(layout.hierarchy(Hierarchy::UNIFIED).unwrap());
    fs::create_dir_all(scratch.dir(&"d/".repeat(63))).unwrap();
    assert_eq!(found(scratch.mount.tree(&scratch.path(""), &any_start)).nodes.len(), 64);
    fs::create_dir_all(scratch.dir(&"d/".repeat(64))).unwrap();
    let answer = scratch.mount.tree(&scratch.path(""), &any_start);
    assert!(answer.unavailable().is_some_and(|reason| reason.contains("64 levels")), "{answer:?}");
}

#[test]
fn names_are_bytes() {
    let node = Node::enter();
    for mount in node.layout().hierarchies() {
        let scratch = Scratch::new(mount);
        let name = OsStr::from_bytes(b"a \xff\x1b[2J");
        fs::create_dir(scratch.dir("").join(name)).unwrap();
        assert_eq!(scratch.open("").children(), Lookup::Found(vec![name.to_owned()]));
        let tree = found(mount.tree(&scratch.path(""), &any_start));
        assert_eq!(tree.nodes[1].path.name(), Some(name));
    }
}
