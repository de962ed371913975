//! Members that are not in every hierarchy, as healthy containers on v1 are: devices is the pod's slice, misc the root.

use reaper_userspace::audit::Outcome;

use crate::in_both_views;
use crate::place::Leaked;

in_both_views! {
    a_member_that_lies_elsewhere_in_other_hierarchies_is_reaped
    who_is_only_in_another_hierarchy_is_not_judged_and_stays
    who_came_into_another_hierarchy_after_the_proof_stays
}

fn a_member_that_lies_elsewhere_in_other_hierarchies_is_reaped(leak: &mut Leaked) {
    let member = leak.member();
    // One has the directory without the process, the next not even the directory.
    let others = leak.others();
    for (index, dir) in others.iter().enumerate() {
        std::fs::write(dir.parent().unwrap().join("cgroup.procs"), member.pid.to_string()).unwrap();
        if index % 2 == 1 {
            std::fs::remove_dir(dir).unwrap();
        }
    }
    let report = leak.reap();
    leak.assert_gone(&report);
    assert!(!member.is_alive().unwrap());
    assert_eq!(report.killed.len(), 1, "{report:#?}");
}

fn who_is_only_in_another_hierarchy_is_not_judged_and_stays(leak: &mut Leaked) {
    let Some(other) = leak.others().into_iter().next() else { return };
    let (member, bystander) = (leak.member(), leak.sleeper());
    std::fs::write(other.join("cgroup.procs"), bystander.pid.to_string()).unwrap();
    let held = leak.try_proof().unwrap_err();
    assert!(held.contains("stray_member"), "{held}");
    assert!(member.is_alive().unwrap() && bystander.is_alive().unwrap());
}

fn who_came_into_another_hierarchy_after_the_proof_stays(leak: &mut Leaked) {
    let Some(other) = leak.others().into_iter().next() else { return };
    let (member, bystander) = (leak.member(), leak.sleeper());
    let armed = leak.arm(leak.proof()).unwrap();
    let fresh = leak.proof();
    std::fs::write(other.join("cgroup.procs"), bystander.pid.to_string()).unwrap();
    let report = leak.fire(armed, &fresh).unwrap();
    assert!(!member.is_alive().unwrap() && bystander.is_alive().unwrap(), "{report:#?}");
    assert_eq!(report.outcome(), Outcome::Stuck, "{report:#?}");
    assert!(report.taken_over && other.is_dir(), "{report:#?}");
}
