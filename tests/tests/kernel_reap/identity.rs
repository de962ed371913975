//! Names and numbers that change hands between the verdict and the act.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use reaper_tests::{Incarnation, wait_for, wait_until};
use reaper_userspace::audit::Outcome;
use reaper_userspace::reap::Refused;

use crate::in_both_views;
use crate::place::{Leaked, SOON};

in_both_views! {
    a_successor_of_the_name_is_refused_when_the_plan_is_armed
    a_successor_of_the_name_is_refused_by_the_second_proof
    a_successor_of_the_name_survives_an_act_that_is_already_proven
    an_empty_successor_of_the_name_is_not_removed
    a_bystander_with_the_number_of_a_dead_member_survives
    a_stranger_that_came_after_the_proof_stops_the_act
}

/// The member ends, the cgroup is removed, and another with a process of its own has the name.
fn succeed(leak: &mut Leaked, member: Incarnation) -> Incarnation {
    leak.end(member);
    leak.replace();
    leak.member()
}

fn a_successor_of_the_name_is_refused_when_the_plan_is_armed(leak: &mut Leaked) {
    let member = leak.member();
    let proof = leak.proof();
    let successor = succeed(leak, member);
    let refused = leak.arm(proof).unwrap_err();
    assert!(matches!(refused, Refused::IdentityChanged(_)), "{refused}");
    assert!(successor.is_alive().unwrap());
}

fn a_successor_of_the_name_is_refused_by_the_second_proof(leak: &mut Leaked) {
    let member = leak.member();
    let armed = leak.arm(leak.proof()).unwrap();
    let successor = succeed(leak, member);
    let refused = leak.fire(armed, &leak.proof()).unwrap_err();
    assert!(matches!(refused, Refused::IdentityChanged(_)), "{refused}");
    assert!(successor.is_alive().unwrap());
}

fn a_successor_of_the_name_survives_an_act_that_is_already_proven(leak: &mut Leaked) {
    let member = leak.member();
    let armed = leak.arm(leak.proof()).unwrap();
    let fresh = leak.proof();
    let successor = succeed(leak, member);
    let dirs = leak.cgroups().dirs(&leak.path);
    let report = leak.fire(armed, &fresh).unwrap();
    assert!(report.killed.is_empty() && report.bystanders.is_empty(), "{report:#?}");
    assert!(successor.is_alive().unwrap(), "{report:#?}");
    assert_eq!(leak.cgroups().dirs(&leak.path), dirs, "{report:#?}");
    assert!(!leak.cgroups().is_frozen(&leak.path).unwrap());
}

fn an_empty_successor_of_the_name_is_not_removed(leak: &mut Leaked) {
    let armed = leak.arm(leak.proof()).unwrap();
    let fresh = leak.proof();
    leak.replace();
    let dirs = leak.cgroups().dirs(&leak.path);
    let report = leak.fire(armed, &fresh).unwrap();
    assert_eq!(leak.cgroups().dirs(&leak.path), dirs, "{report:#?}");
    assert_eq!(report.outcome(), Outcome::Partial, "{report:#?}");
}

/// A process with this number, which is free.
fn with_number(leak: &mut Leaked, pid: u32) -> Incarnation {
    // Other tests want numbers of their own; and any fork on the machine may be faster.
    let lock = File::create("/tmp/reaper-test-ns-last-pid.lock").unwrap();
    lock.lock().unwrap();
    wait_for("the number", SOON, || {
        std::fs::write("/proc/sys/kernel/ns_last_pid", pid.saturating_sub(1).to_string())?;
        let process = leak.sleeper();
        if process.pid != pid {
            leak.end(process);
        }
        Ok((process.pid == pid).then_some(process))
    })
    .unwrap()
}

fn a_bystander_with_the_number_of_a_dead_member_survives(leak: &mut Leaked) {
    let (dies, stays) = (leak.member(), leak.member());
    let armed = leak.arm(leak.proof()).unwrap();
    let fresh = leak.proof();
    leak.end(dies);
    // Two incarnations of one number within one tick of 10 ms have one name in records, too.
    std::thread::sleep(Duration::from_millis(20));
    let bystander = with_number(leak, dies.pid);
    let report = leak.fire(armed, &fresh).unwrap();
    leak.assert_gone(&report);
    assert!(!stays.is_alive().unwrap());
    assert!(bystander.is_alive().unwrap(), "{report:#?}");
    assert_eq!(report.killed.len(), 1);
}

fn a_stranger_that_came_after_the_proof_stops_the_act(leak: &mut Leaked) {
    let member = leak.member();
    for frozen in [false, true] {
        if frozen {
            leak.freeze(&leak.path);
        }
        let armed = leak.arm(leak.proof()).unwrap();
        let fresh = leak.proof();
        let stranger = leak.spawn(Command::new("sleep").arg("1000"));
        leak.enter("", stranger);
        let report = leak.fire(armed, &fresh).unwrap();
        assert_eq!(report.outcome(), Outcome::Stuck, "{report:#?}");
        assert!(report.steps[0].error.as_ref().unwrap().contains("nothing was killed"), "{report:#?}");
        assert!(member.is_alive().unwrap() && stranger.is_alive().unwrap());
        assert!(report.steps.iter().all(|step| step.error.is_some()), "no later step is tried");
        // A refused act leaves the freezer as it was. A stopped task is frozen a moment after its cgroup is asked.
        let as_before = || Ok(leak.cgroups().is_frozen(&leak.path)? == frozen);
        wait_until("the freezer as it was", SOON, as_before).unwrap();
    }
}
