//! Each leak maker reaches its promised end state in both views, and nothing is left after the drop.

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Result;
    use reaper_tests::{Bystander, CgroupView, Containerd, Crash, Inventory, Leak, LeakKind, Node, Traces};

    fn containerd(view: CgroupView) -> Containerd {
        Containerd::start(Node::new(view).unwrap()).unwrap()
    }

    fn crash_in_every_way(containerd: &Containerd) -> Vec<Leak> {
        std::thread::scope(|scope| {
            let makers = Crash::ALL.map(|crash| {
                scope.spawn(move || containerd.crash(&format!("{crash:?}").to_lowercase(), crash))
            });
            makers.into_iter().map(|maker| maker.join().unwrap().unwrap()).collect()
        })
    }

    fn every_crash_leaves_its_leak_and_the_drop_leaves_nothing(view: CgroupView) -> Result<()> {
        if !view.is_available()? {
            assert!(Node::new(view).is_err(), "{view:?}");
            return Ok(());
        }
        let elsewhere = Node::new(view)?;
        let bystander = Bystander::start(&elsewhere)?;
        let before = Inventory::take()?.naming(elsewhere.name());
        assert!(!before.is_empty());
        let containerd = containerd(view);
        let leaks = crash_in_every_way(&containerd);
        for leak in &leaks {
            assert_eq!(leak.members_left()?.len(), leak.members.len(), "{leak:?}");
            assert_eq!(leak.dirs_left(), leak.dirs, "{leak:?}");
            assert!(!leak.is_gone()?, "{leak:?}");
        }
        let counts = [LeakKind::HalfCreated, LeakKind::Orphaned, LeakKind::Empty]
            .map(|kind| leaks.iter().filter(|leak| leak.kind == kind).count());
        assert_eq!(counts, [2, 1, 2]);
        let traces = containerd.traces();
        assert!(traces.left()?.len() > leaks.len(), "the question finds what is there");
        drop(containerd);
        assert_gone(&traces)?;
        for leak in &leaks {
            assert!(leak.is_gone()?, "{leak:?}");
        }
        assert!(bystander.incarnation().is_alive()?);
        assert_eq!(Inventory::take()?.naming(elsewhere.name()), before);
        Ok(())
    }

    fn assert_gone(traces: &Traces) -> Result<()> {
        assert_eq!(traces.left()?, Vec::<String>::new());
        assert!(!traces.dir_exists());
        Ok(())
    }

    #[test]
    fn every_crash_leaves_its_leak_on_cgroup_v2() -> Result<()> {
        every_crash_leaves_its_leak_and_the_drop_leaves_nothing(CgroupView::V2)
    }

    #[test]
    fn every_crash_leaves_its_leak_on_cgroup_v1() -> Result<()> {
        every_crash_leaves_its_leak_and_the_drop_leaves_nothing(CgroupView::V1)
    }

    #[test]
    fn a_panic_leaves_nothing_either() -> Result<()> {
        let containerd = containerd(CgroupView::V2);
        let traces = containerd.traces();
        let panicked = std::thread::spawn(move || {
            let leak = containerd.crash("panic", Crash::FrozenCreate).unwrap();
            panic!("on purpose, with {leak:?} around");
        });
        let payload = panicked.join().unwrap_err();
        assert!(payload.downcast_ref::<String>().is_some_and(|text| text.starts_with("on purpose")));
        assert_gone(&traces)
    }

    #[test]
    fn bundles_with_a_busy_rootfs_make_a_start_slow_until_their_inits_are_gone() -> Result<()> {
        let containerd = containerd(CgroupView::V2);
        let crash = Crash::FrozenCreateBusyRootfs;
        let leak = containerd.crash("busy", crash)?;
        let slow = containerd.restart()?;
        assert!(slow > Duration::from_secs(2), "{slow:?}, first start {:?}", containerd.first_start());
        assert!(leak.bundle.exists(), "it heals not by itself");
        containerd.node().cgroups().remove(&leak.cgroup)?;
        let heals = containerd.restart()?;
        assert!(heals < Duration::from_secs(2), "{heals:?}");
        assert!(!leak.bundle.exists());
        Ok(())
    }
}
