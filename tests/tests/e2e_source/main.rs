//! A containerd that gives no answer proves nothing: whatever is wrong with it, nothing is confirmed or touched.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "the stub replaces the socket of a containerd that was ended")]

mod stub;

use std::time::Duration;

use anyhow::Result;
use reaper_tests::{
    CgroupView, Containerd, Crash, Leak, Live, Mode, Node, Reaper, Shape, Watch, processes_naming,
    read_audit, wait_for,
};

use stub::{Behaviour, Stub};

/// One leak of each main kind, and live containers, all of which the daemon's memory knows.
struct Stage {
    reaper: Reaper,
    leaks: [Leak; 2],
    live: Live,
    shimless: Live,
    containerd: Containerd,
}

impl Stage {
    fn set(view: CgroupView) -> Result<Self> {
        let containerd = Containerd::start(Node::new(view)?)?;
        let reaper = Reaper::from_env(&containerd)?;
        let leaks = [
            containerd.crash("frozen", Crash::FrozenCreate)?,
            containerd.crash("orphan", Crash::OrphanedChildren)?,
        ];
        let live = containerd.live("live", Shape::Plain)?;
        let shimless = containerd.live("shimless", Shape::Several)?;
        let stage = Self { reaper, leaks, live, shimless, containerd };
        // With containerd down only memory and bundles tie cgroups to containers.
        assert_eq!(stage.reaper.once(Mode::Observe)?.code, Some(3));
        Ok(stage)
    }

    /// Nothing is confirmed or touched, and the leaks are held back for want of an answer.
    fn assert_held(&self, why: &str, live: &[&Live]) -> Result<()> {
        let inits = live.iter().map(|live| live.init);
        let watch = Watch::of(self.leaks.iter().flat_map(|leak| leak.members.clone()).chain(inits));
        let scan = self.reaper.scan()?;
        assert_eq!(scan.code, Some(0), "{why}: {:#}", scan.list);
        assert_eq!(scan.confirmed(), Vec::<String>::new(), "{why}: {:#}", scan.list);
        for leak in &self.leaks {
            let item = scan.of(&leak.id).unwrap_or_else(|| panic!("{why}: {:#}", scan.list));
            let held_by = item.held_by();
            assert!(held_by.iter().any(|guard| guard == "source_unavailable"), "{why}: {item:?}");
            assert_eq!(item.text("/state"), "protected", "{why}: {item:?}");
        }
        let once = self.reaper.once(Mode::Enforce)?;
        assert!(once.code == Some(1) && once.stderr.contains("no answer"), "{why}: {once:?}");
        assert_eq!(watch.dead()?, [], "{why}");
        for leak in &self.leaks {
            assert_eq!(leak.dirs_left(), leak.dirs, "{why}");
        }
        let acts = read_audit(&self.reaper.audit_log())?;
        assert!(acts.iter().all(|record| record["type"] != "reap.intent"), "{why}");
        Ok(())
    }

    /// A shim that dies while containerd is stopped: nobody is left who answers for the container.
    fn kill_shim(&self) -> Result<()> {
        let shim = format!(" -id {} -address ", self.shimless.id);
        let shim = wait_for("its shim", Duration::from_secs(5), || {
            Ok(processes_naming(&[self.containerd.namespace(), &shim])?.first().copied())
        })?;
        shim.kill()?;
        wait_for("its end", Duration::from_secs(5), || Ok((!shim.is_alive()?).then_some(())))
    }
}

fn a_containerd_that_gives_no_answer_proves_nothing(view: CgroupView) -> Result<()> {
    let stage = Stage::set(view)?;
    let Stage { containerd, live, shimless, .. } = &stage;
    let all = [live, shimless];
    containerd.pause()?;
    stage.kill_shim()?;
    stage.assert_held("stopped by a signal, a shim dead", &all)?;
    containerd.kill()?;
    stage.assert_held("killed", &all)?;
    for behaviour in [Behaviour::HangUp, Behaviour::Answer(14), Behaviour::Answer(13), Behaviour::Answer(2)] {
        let stub = Stub::start(&containerd.address(), behaviour);
        stage.assert_held(&format!("{behaviour:?}"), &all)?;
        drop(stub);
    }
    // As it comes back, containerd itself removes the container without a shim.
    containerd.serve()?;
    containerd.stop()?;
    stage.assert_held("ended in order", &[live])?;
    containerd.serve()?;
    let once = stage.reaper.once(Mode::Enforce)?;
    assert_eq!(once.code, Some(0), "{once:?}");
    for leak in &stage.leaks {
        assert!(leak.is_gone()?, "it answers again: {leak:?} {once:?}");
    }
    assert!(live.still_alive(containerd)?);
    Ok(())
}

#[test]
fn a_containerd_that_gives_no_answer_proves_nothing_on_cgroup_v2() -> Result<()> {
    a_containerd_that_gives_no_answer_proves_nothing(CgroupView::V2)
}

#[test]
fn a_containerd_that_gives_no_answer_proves_nothing_on_cgroup_v1() -> Result<()> {
    a_containerd_that_gives_no_answer_proves_nothing(CgroupView::V1)
}
