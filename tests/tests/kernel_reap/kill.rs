//! Everything in a leak ends, whatever shape it has.

use std::process::Command;
use std::time::Duration;

use reaper_tests::wait_until;

use crate::in_both_views;
use crate::place::{Leaked, SOON};

in_both_views! {
    a_frozen_tree_is_killed_and_removed
    a_child_that_is_frozen_by_its_own_is_killed_and_removed
    three_levels_are_killed_and_removed
    directories_without_a_process_are_removed_without_a_signal
    a_hundred_processes_are_killed_and_removed
    a_process_whose_main_thread_has_exited_is_killed
    a_process_that_forks_without_pause_is_ended_with_all_it_forked
}

fn a_frozen_tree_is_killed_and_removed(leak: &mut Leaked) {
    let members = [leak.member(), leak.member()];
    leak.freeze(&leak.path);
    let report = leak.reap();
    leak.assert_gone(&report);
    assert!(members.iter().all(|member| !member.is_alive().unwrap()));
    assert_eq!(report.killed.len(), 2, "{report:#?}");
}

fn a_child_that_is_frozen_by_its_own_is_killed_and_removed(leak: &mut Leaked) {
    let (above, below) = (leak.member(), leak.sleeper());
    leak.enter("/child", below);
    leak.freeze(&format!("{}/child", leak.path));
    let report = leak.reap();
    leak.assert_gone(&report);
    assert!(!above.is_alive().unwrap() && !below.is_alive().unwrap());
}

fn three_levels_are_killed_and_removed(leak: &mut Leaked) {
    let members: Vec<_> = ["/a", "/a/b", "/a/b/c", "/d"]
        .into_iter()
        .map(|below| {
            let process = leak.sleeper();
            leak.enter(below, process);
            process
        })
        .collect();
    let report = leak.reap();
    leak.assert_gone(&report);
    assert!(members.iter().all(|member| !member.is_alive().unwrap()));
}

fn directories_without_a_process_are_removed_without_a_signal(leak: &mut Leaked) {
    leak.cgroups().enter(&format!("{}/a/b", leak.path), &std::collections::BTreeSet::new()).unwrap();
    let report = leak.reap();
    leak.assert_gone(&report);
    assert!(report.killed.is_empty() && report.steps.iter().all(|step| step.op == "rmdir"), "{report:#?}");
}

fn a_hundred_processes_are_killed_and_removed(leak: &mut Leaked) {
    let members: Vec<_> = (0..100).map(|_| leak.member()).collect();
    let report = leak.reap();
    leak.assert_gone(&report);
    assert_eq!(report.killed.len(), 100);
    assert!(members.iter().all(|member| !member.is_alive().unwrap()));
    println!("{:?}: 100 processes in {:.1?}", leak.node.view(), report.took);
}

/// `cgroup.kill` goes over the leaders of thread groups and, on several kernels, leaves out one that has exited.
fn a_process_whose_main_thread_has_exited_is_killed(leak: &mut Leaked) {
    let leaderless = |leak: &mut Leaked, below: &str| {
        // It loses its main thread inside: one that is moved afterwards leaves its main thread behind.
        let script = format!("read -r go; exec {}", env!("CARGO_BIN_EXE_leaderless"));
        let process = leak.spawn(Command::new("sh").args(["-c", &script]));
        leak.enter(below, process);
        leak.tell(process);
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap();
        wait_until("a process without its main thread", SOON, || Ok(stat().contains(") Z "))).unwrap();
        process
    };
    let alone = format!("{}/alone", leak.path);
    let one = leaderless(leak, "/alone");
    let kill = leak.cgroups().freezer().unwrap().dir(&alone).join("cgroup.kill");
    if kill.exists() {
        std::fs::write(kill, "1").unwrap();
        std::thread::sleep(Duration::from_millis(200));
        println!("cgroup.kill alone ends a process without its main thread: {}", !threads_left(one.pid));
    }
    let other = leaderless(leak, "");
    let report = leak.reap();
    leak.assert_gone(&report);
    assert!(!threads_left(one.pid) && !threads_left(other.pid), "{report:#?}");
}

fn threads_left(pid: u32) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1)
}

/// Bounded: each child ends by itself, so that about 200 live at a time and never many more.
fn a_process_that_forks_without_pause_is_ended_with_all_it_forked(leak: &mut Leaked) {
    let script =
        "while read -r go; do break; done; i=0; while [ $i -lt 4000 ]; do sleep 0.2 & i=$((i+1)); done; wait";
    let bomb = leak.spawn(Command::new("sh").args(["-c", script]));
    leak.enter("", bomb);
    leak.tell(bomb);
    wait_until("twenty children", SOON, || Ok(leak.cgroups().members(&leak.path)?.len() > 20)).unwrap();
    let report = leak.reap();
    leak.assert_gone(&report);
    assert!(!bomb.is_alive().unwrap());
    println!(
        "{:?}: a process that forks, {} killed in {:.1?}",
        leak.node.view(),
        report.killed.len(),
        report.took
    );
}
