//! The daemon when something around it fails: a second daemon, a full disk, a crash before it, a restarted containerd.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "mounts and unmounts a full disk")]

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use reaper_tests::{
    CgroupView, Containerd, Crash, Daemon, DaemonOptions, Leak, Mode, Node, Reaper, read_audit, wait_until,
};
use reaper_userspace::audit::{
    Answer, Before, IntentBody, Journal, Node as Place, Target, Tool, Trigger, verify,
};
use reaper_userspace::daemon::clock;
use reaper_userspace::ident::{CgroupRef, ContainerId, Namespace};
use reaper_userspace::leak::{Cause, LeakKind};
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::Value;

const SOON: Duration = Duration::from_mins(1);
const INTERVAL: Duration = Duration::from_millis(300);

fn start(view: CgroupView) -> Result<(Containerd, Reaper)> {
    let containerd = Containerd::start(Node::new(view)?)?;
    let reaper = Reaper::from_env(&containerd)?;
    Ok((containerd, reaper))
}

fn daemon(reaper: &Reaper, grace: Duration) -> Result<Daemon> {
    let options = DaemonOptions { mode: Mode::Enforce, grace, interval: INTERVAL };
    reaper.daemon_with(&options, &["--probes", "poll"])
}

fn of(log: &Path, kind: &str) -> Result<Vec<Value>> {
    Ok(read_audit(log)?.into_iter().filter(|record| record["type"] == kind).collect())
}

fn series(daemon: &Daemon, series: &str) -> Result<String> {
    let (_, page) = daemon.get("/metrics")?;
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Ok(value.unwrap_or_else(|| panic!("no {series}")).to_owned())
}

fn assert_untouched(leak: &Leak) -> Result<()> {
    assert_eq!(leak.dirs_left(), leak.dirs);
    assert_eq!(leak.members_left()?.len(), leak.members.len());
    Ok(())
}

fn refusals(daemon: &Daemon, guard: &str) -> Result<f64> {
    Ok(series(daemon, &format!("cgroup_reaper_vetoes_total{{guard=\"{guard}\"}}"))?.parse()?)
}

#[test]
fn a_second_daemon_only_observes_until_the_first_has_ended() -> Result<()> {
    let (containerd, reaper) = start(CgroupView::V2)?;
    // The first one never gets to act by itself.
    let first = daemon(&reaper, Duration::from_mins(10))?;
    let leak = containerd.crash("leak", Crash::FrozenCreate)?;
    let second = reaper.clone().recording_in(containerd.node().dir().join("second.jsonl"));
    let observer = daemon(&second, Duration::from_secs(1))?;
    wait_until("a refusal", SOON, || Ok(refusals(&observer, "paused")? >= 1.0))?;
    assert_untouched(&leak)?;
    assert_eq!(of(&second.audit_log(), "leak.confirmed")?.len(), 1);
    assert_eq!(of(&second.audit_log(), "reap.intent")?.len(), 0);
    // A package's defaults name one log for both: the second does without.
    let options = DaemonOptions { mode: Mode::Enforce, grace: Duration::from_secs(1), interval: INTERVAL };
    let third = reaper.daemon_until("/livez", &options, &["--probes", "poll"])?;
    wait_until("a refusal", SOON, || Ok(refusals(&third, "paused")? >= 1.0))?;
    assert_untouched(&leak)?;
    assert_eq!([first.stop()?, third.stop()?], [Some(0); 2]);
    wait_until("the end of the leak", SOON, || leak.is_gone())?;
    assert_eq!(observer.stop()?, Some(0));
    Ok(())
}

/// A filesystem that is full after a few records.
struct FullDisk(PathBuf);

/// Takes all records.
const ROOMY: &CStr = c"size=1m";

impl FullDisk {
    /// While no file is open for writing, as a filesystem with errors does by itself.
    fn change(&self, flags: MountFlags, data: &CStr) {
        rustix::mount::mount_remount(&self.0, flags, data).unwrap();
    }

    fn mount(at: PathBuf) -> Self {
        std::fs::create_dir(&at).unwrap();
        rustix::mount::mount("tmpfs", &at, "tmpfs", MountFlags::empty(), Some(c"size=4k")).unwrap();
        Self(at)
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn nothing_is_reaped_while_the_audit_log_takes_no_records() -> Result<()> {
    let (containerd, reaper) = start(CgroupView::V2)?;
    let disk = FullDisk::mount(containerd.node().dir().join("full"));
    let reaper = reaper.recording_in(disk.0.join("audit.jsonl"));
    let leaks =
        [containerd.crash("one", Crash::FrozenCreate)?, containerd.crash("two", Crash::OrphanedChildren)?];
    let daemon = daemon(&reaper, Duration::from_secs(1))?;
    wait_until("a refusal", SOON, || Ok(refusals(&daemon, "audit_unavailable")? >= 1.0))?;
    std::thread::sleep(3 * INTERVAL);
    leaks.iter().try_for_each(assert_untouched)?;
    assert_eq!(of(&reaper.audit_log(), "reap.intent")?.len(), 0);
    assert_eq!(series(&daemon, "cgroup_reaper_component_up{component=\"audit\"}")?, "0");
    assert_eq!(daemon.get("/livez")?.0, 200);
    let not_ready = |why: &str| -> Result<bool> {
        let (status, page) = daemon.get("/readyz?verbose")?;
        Ok(status == 503 && page.contains(why))
    };
    assert!(not_ready("space")?);
    // Space comes back, and now it is read-only: opened again, refused again.
    disk.change(MountFlags::RDONLY, ROOMY);
    wait_until("another reason", SOON, || not_ready("Read-only file system"))?;
    leaks.iter().try_for_each(assert_untouched)?;
    disk.change(MountFlags::empty(), ROOMY);
    for leak in &leaks {
        wait_until("the end of the leak", SOON, || leak.is_gone())?;
    }
    assert_eq!(series(&daemon, "cgroup_reaper_component_up{component=\"audit\"}")?, "1");
    assert_eq!(daemon.get("/readyz")?.0, 200);
    assert_eq!(daemon.stop()?, Some(0));
    let reopened = of(&reaper.audit_log(), "audit.reopened")?;
    assert!(reopened[0]["reason"].as_str().is_some_and(|reason| reason.contains("space")));
    let killed = of(&reaper.audit_log(), "reap.outcome")?;
    let killed: Vec<&Value> =
        killed.iter().flat_map(|record| record["killed"]["processes"].as_array().unwrap()).collect();
    for member in leaks.iter().flat_map(|leak| &leak.members) {
        let named = killed.iter().find(|process| process["pid"] == member.pid).unwrap();
        assert!(named["start"].as_u64() > Some(0) && named["comm"].as_str() > Some(""), "{named}");
    }
    assert!(verify(&reaper.audit_log()).is_ok_and(|report| report.open.is_empty()));
    Ok(())
}

/// Records the intent of a daemon that did not live to record the outcome.
fn interrupted_act(reaper: &Reaper, leak: &Leak) -> Result<u64> {
    let item = reaper.scan()?.of(&leak.id).unwrap();
    let cgroups: Vec<CgroupRef> = serde_json::from_value(item.field("/target/cgroups").unwrap().clone())?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let place = Place { boot, name: "node".to_owned() };
    let (mut journal, open) = Journal::open(&reaper.audit_log(), place, clock::stamp())?;
    assert_eq!(open, []);
    let body = IntentBody {
        tool: Tool { version: "0".to_owned(), config: String::new(), mode: "enforce".to_owned() },
        trigger: Trigger::daemon(Cause::CreateKilled),
        target: Target {
            kind: LeakKind::HalfCreated,
            cgroup_ids: cgroups,
            path: leak.cgroup.clone(),
            container: ContainerId::try_from(leak.id.as_str())?,
            runtime_ns: Namespace::try_from(leak.namespace.as_str())?,
        },
        evidence: vec![],
        evidence_omitted: 0,
        before: Before::new(Answer::Yes, Answer::Yes, &[]),
    };
    Ok(journal.intent(clock::stamp(), item.text("/id"), body)?.txn())
}

fn an_interrupted_act_is_closed_and_its_leak_reaped(view: CgroupView) -> Result<()> {
    let (containerd, reaper) = start(view)?;
    let leak = containerd.crash("leak", Crash::FrozenCreate)?;
    let txn = interrupted_act(&reaper, &leak)?;
    let once = reaper.once(Mode::Enforce)?;
    assert_eq!(once.code, Some(0), "{once:?}");
    assert!(leak.is_gone()?);
    let recovered = of(&reaper.audit_log(), "reap.recovered")?;
    assert_eq!(recovered.len(), 1);
    assert_eq!(
        (recovered[0]["txn"].as_u64(), &recovered[0]["after"]["state"]),
        (Some(txn), &"remains".into())
    );
    let outcomes = of(&reaper.audit_log(), "reap.outcome")?;
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0]["outcome"], "reaped");
    assert!(outcomes[0]["txn"].as_u64() > Some(txn));
    let report = verify(&reaper.audit_log());
    assert!(report.is_ok_and(|report| report.open.is_empty()));
    Ok(())
}

#[test]
fn an_interrupted_act_is_closed_and_its_leak_reaped_on_cgroup_v2() -> Result<()> {
    an_interrupted_act_is_closed_and_its_leak_reaped(CgroupView::V2)
}

#[test]
fn an_interrupted_act_is_closed_and_its_leak_reaped_on_cgroup_v1() -> Result<()> {
    an_interrupted_act_is_closed_and_its_leak_reaped(CgroupView::V1)
}

#[test]
fn a_containerd_that_restarts_makes_the_age_start_anew() -> Result<()> {
    const GRACE: Duration = Duration::from_secs(4);
    let (containerd, reaper) = start(CgroupView::V2)?;
    let leak = containerd.crash("leak", Crash::FrozenCreate)?;
    let daemon = daemon(&reaper, GRACE)?;
    let seen = "cgroup_reaper_leaks{kind=\"cgroup.half_created\",state=\"suspected\"}";
    wait_until("a suspect", SOON, || Ok(series(&daemon, seen)? == "1"))?;
    std::thread::sleep(GRACE / 2);
    containerd.stop()?;
    let restarted = clock::boot();
    containerd.serve()?;
    assert_untouched(&leak)?;
    wait_until("the end of the leak", SOON, || leak.is_gone())?;
    let intent = of(&reaper.audit_log(), "reap.intent")?.remove(0);
    let acted = intent["mono_ns"].as_u64().unwrap();
    assert!(acted >= restarted.after(GRACE).as_nanos(), "{acted} {restarted:?}");
    assert_eq!(daemon.stop()?, Some(0));
    Ok(())
}
