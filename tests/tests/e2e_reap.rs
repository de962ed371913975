//! Real leaks of every kind are found, explained and reaped by command, and nothing else is; looking is no act.
#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use reaper_tests::{CgroupView, Containerd, Crash, Leak, Live, Mode, Node, Reaper, Shape, read_audit};
use reaper_userspace::audit::verify;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);

/// What makes each one leak, in the product's words.
const CAUSES: [(Crash, &str); 5] = [
    (Crash::FrozenCreate, "create_killed"),
    (Crash::FrozenCreateBusyRootfs, "create_killed"),
    (Crash::ThawedCreate, "unknown"),
    (Crash::OrphanedChildren, "delete_failed"),
    (Crash::NestedTree, "delete_failed"),
];

/// A live container, and each kind of leak twice: for `reap` and for `run --once`.
struct Stage {
    reaper: Reaper,
    live: Live,
    by_name: Vec<Leak>,
    by_run: Vec<Leak>,
    // Last: dropped after what points into it.
    containerd: Containerd,
}

impl Stage {
    fn set(view: CgroupView) -> Result<Self> {
        let containerd = Containerd::start(Node::new(view)?)?;
        let reaper = Reaper::from_env(&containerd)?;
        let live = containerd.live("live", Shape::Several)?;
        let make = |by: &'static str| {
            let containerd = &containerd;
            CAUSES.map(move |(crash, _)| {
                move || containerd.crash(&format!("{crash:?}-{by}").to_lowercase(), crash)
            })
        };
        let (by_name, by_run) = std::thread::scope(|scope| {
            let start = |by| make(by).map(|maker| scope.spawn(maker));
            let (named, run) = (start("name"), start("run"));
            let join = |makers: [std::thread::ScopedJoinHandle<'_, Result<Leak>>; 5]| {
                makers.into_iter().map(|maker| maker.join().unwrap()).collect::<Result<Vec<_>>>()
            };
            (join(named), join(run))
        });
        Ok(Self { reaper, live, by_name: by_name?, by_run: by_run?, containerd })
    }

    fn leaks(&self) -> impl Iterator<Item = &Leak> {
        self.by_name.iter().chain(&self.by_run)
    }

    fn assert_untouched(&self, leaks: &[Leak], by: &str) -> Result<()> {
        for leak in leaks {
            assert_eq!(leak.dirs_left(), leak.dirs, "{by}");
            assert_eq!(leak.members_left()?.len(), leak.members.len(), "{by}: {leak:?}");
            let half_created = matches!(leak.crash, Crash::FrozenCreate | Crash::FrozenCreateBusyRootfs);
            let frozen = self.containerd.node().cgroups().is_frozen(&leak.cgroup)?;
            assert_eq!(frozen, half_created, "{by}: {leak:?}");
            let pinned = leak.crash == Crash::FrozenCreateBusyRootfs;
            assert_eq!(has_mounts(&leak.bundle)?, pinned, "{by}: {leak:?}");
        }
        assert!(self.live.still_alive(&self.containerd)?, "{by}");
        Ok(())
    }

    fn assert_gone(&self, leaks: &[Leak], by: &str) -> Result<()> {
        for leak in leaks {
            assert!(leak.is_gone()?, "{by}: {:?} {:?}", leak.dirs_left(), leak.members_left());
            assert!(!has_mounts(&leak.bundle)?, "{by}: {}", leak.bundle.display());
        }
        assert!(self.live.still_alive(&self.containerd)?, "{by}");
        Ok(())
    }

    /// Each leak has one intent, about exactly it, and after it the outcome of the same act.
    fn assert_recorded(&self, leaks: &[Leak]) -> Result<()> {
        let report = verify(&self.reaper.audit_log());
        assert!(report.is_ok(), "{report:?}");
        let records = read_audit(&self.reaper.audit_log())?;
        for leak in leaks {
            let of = |kind: &str| {
                let is = |record: &&Value| {
                    record["type"] == kind && record["target"]["container"] == leak.id.as_str()
                };
                records.iter().filter(is).collect::<Vec<_>>()
            };
            let (intents, outcomes) = (of("reap.intent"), of("reap.outcome"));
            let ([intent], [outcome]) = (intents.as_slice(), outcomes.as_slice()) else {
                panic!("{leak:?}: {intents:?} {outcomes:?}");
            };
            assert!(intent["seq"].as_u64() < outcome["seq"].as_u64());
            assert_eq!((&intent["txn"], &intent["txn"]), (&intent["seq"], &outcome["txn"]));
            assert_eq!(outcome["outcome"], "reaped", "{outcome}");
            assert_eq!(outcome["after"]["state"], "gone", "{outcome}");
            assert_eq!(intent["target"], outcome["target"]);
            assert_target(&intent["target"], leak);
            let before = intent["before"]["processes"].as_array().unwrap();
            let pids: BTreeSet<u64> = before.iter().map(|one| one["pid"].as_u64().unwrap()).collect();
            assert_eq!(pids, leak.members.iter().map(|member| u64::from(member.pid)).collect());
        }
        Ok(())
    }
}

fn assert_target(target: &Value, leak: &Leak) {
    assert_eq!(target["kind"], leak.kind.as_str());
    assert_eq!(target["path"], leak.cgroup.as_str());
    assert_eq!(target["runtime_ns"], leak.namespace.as_str());
    let ids = target["cgroup_ids"].as_array().unwrap().len();
    let roots = leak.dirs.iter().filter(|dir| dir.ends_with(&leak.id)).count();
    assert_eq!(ids, roots, "one id a hierarchy: {target}");
}

fn has_mounts(bundle: &Path) -> Result<bool> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at).starts_with(bundle))))
}

/// Returns the short names of the leaks that are to be reaped by name.
fn scan_finds_each_with_kind_and_cause(stage: &Stage) -> Result<Vec<String>> {
    let scan = stage.reaper.scan()?;
    assert_eq!(scan.code, Some(3), "{:#}", scan.list);
    let wanted: BTreeSet<String> = stage.leaks().map(|leak| leak.id.clone()).collect();
    assert_eq!(scan.confirmed(), wanted.into_iter().collect::<Vec<_>>(), "{:#}", scan.list);
    assert!(scan.of(&stage.live.id).is_none());
    for leak in stage.leaks() {
        let item = scan.of(&leak.id).unwrap();
        let (_, cause) = CAUSES.iter().find(|(crash, _)| *crash == leak.crash).unwrap();
        assert_eq!(
            (item.text("/kind").as_str(), item.text("/cause").as_str()),
            (leak.kind.as_str(), *cause),
            "{item:?}"
        );
        assert_eq!(item.text("/target/path"), leak.cgroup);
        assert_eq!(item.field("/processes").unwrap().as_array().unwrap().len(), leak.members.len());
        assert_eq!(item.held_by(), Vec::<String>::new());
    }
    Ok(stage.by_name.iter().map(|leak| scan.of(&leak.id).unwrap().text("/id")).collect())
}

fn explain_says_why(stage: &Stage, names: &[String]) -> Result<()> {
    for (leak, name) in stage.by_name.iter().zip(names) {
        let said = stage.reaper.run(&["explain", name, "--grace", "250ms"], LIMIT)?;
        assert_eq!(said.code, Some(0), "{said:?}");
        for expected in ["would reap: yes", leak.kind.as_str(), &leak.cgroup, "no task", "rmdir"] {
            assert!(said.stdout.contains(expected), "{expected}: {}", said.stdout);
        }
        assert_eq!(said.stdout.contains("kill"), !leak.members.is_empty(), "{}", said.stdout);
    }
    let said = stage.reaper.run(&["explain", &stage.live.id], LIMIT)?;
    assert!(said.stdout.contains("in use: task running"), "{said:?}");
    let refused = stage.reaper.reap(&[&stage.live.id])?;
    assert!(refused.code != Some(0), "{refused:?}");
    Ok(())
}

fn looking_touches_nothing(stage: &Stage) -> Result<()> {
    let dry = stage.reaper.reap(&["--all", "--dry-run"])?;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(dry.stdout.lines().count(), stage.leaks().count(), "{}", dry.stdout);
    assert!(!stage.reaper.audit_log().exists(), "a dry run records nothing");
    let observed = stage.reaper.once(Mode::Observe)?;
    assert_eq!(observed.code, Some(3), "{observed:?}");
    let records = read_audit(&stage.reaper.audit_log())?;
    let of = |kind: &str| records.iter().filter(|record| record["type"] == kind).count();
    assert_eq!((of("leak.confirmed"), of("reap.intent")), (stage.leaks().count(), 0));
    stage.assert_untouched(&stage.by_name, "observe")?;
    stage.assert_untouched(&stage.by_run, "observe")
}

fn leaks_are_found_explained_and_reaped(view: CgroupView) -> Result<()> {
    let stage = Stage::set(view)?;
    stage.assert_untouched(&stage.by_name, "before")?;
    let names = scan_finds_each_with_kind_and_cause(&stage)?;
    explain_says_why(&stage, &names)?;
    looking_touches_nothing(&stage)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reaped = stage.reaper.reap(&names)?;
    assert_eq!(reaped.code, Some(0), "{reaped:?}");
    stage.assert_gone(&stage.by_name, &format!("{reaped:?}"))?;
    stage.assert_untouched(&stage.by_run, "reap of others")?;
    let once = stage.reaper.once(Mode::Enforce)?;
    assert_eq!(once.code, Some(0), "{once:?}");
    stage.assert_gone(&stage.by_run, &format!("{once:?}"))?;
    stage.assert_recorded(&stage.by_name)?;
    stage.assert_recorded(&stage.by_run)?;
    let scan = stage.reaper.scan()?;
    assert_eq!((scan.code, scan.items().len()), (Some(0), 0), "{:#}", scan.list);
    Ok(())
}

#[test]
fn leaks_are_found_explained_and_reaped_on_cgroup_v2() -> Result<()> {
    leaks_are_found_explained_and_reaped(CgroupView::V2)
}

#[test]
fn leaks_are_found_explained_and_reaped_on_cgroup_v1() -> Result<()> {
    leaks_are_found_explained_and_reaped(CgroupView::V1)
}
