//! Live containers, creations in flight and bystanders are what they claim to be, and end with their fixture.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use anyhow::Result;
    use reaper_tests::{Bystander, CgroupView, Containerd, Node, Shape, Watch, wait_until};

    fn containerd(view: CgroupView) -> Containerd {
        Containerd::start(Node::new(view).unwrap()).unwrap()
    }

    fn live_containers_outlive_their_containerd(view: CgroupView) -> Result<()> {
        if !view.is_available()? {
            assert!(Node::new(view).is_err(), "{view:?}");
            return Ok(());
        }
        let containerd = containerd(view);
        let shapes = [Shape::Plain, Shape::Several, Shape::Paused, Shape::Nested];
        let live: Vec<_> = shapes
            .iter()
            .map(|shape| containerd.live(&format!("{shape:?}").to_lowercase(), *shape))
            .collect::<Result<_>>()?;
        containerd.kill()?;
        assert!(live[0].still_alive(&containerd).is_err(), "nobody answers");
        containerd.serve()?;
        for container in &live {
            assert!(container.still_alive(&containerd)?, "{container:?}");
            let paused = container.shape == Shape::Paused;
            assert_eq!(containerd.node().cgroups().is_frozen(&container.cgroup)?, paused, "{container:?}");
            let leaf_is_empty = container.shape == Shape::Nested;
            for dir in containerd.node().cgroups().dirs(&container.cgroup) {
                let procs = fs::read_to_string(dir.join("cgroup.procs"))?;
                assert_eq!(procs.is_empty(), leaf_is_empty, "{}", dir.display());
            }
        }
        live[0].init.kill()?;
        wait_until("a dead init", Duration::from_secs(5), || Ok(!live[0].still_alive(&containerd)?))?;
        let traces = containerd.traces();
        drop(containerd);
        assert_eq!(traces.left()?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn live_containers_outlive_their_containerd_on_cgroup_v2() -> Result<()> {
        live_containers_outlive_their_containerd(CgroupView::V2)
    }

    #[test]
    fn live_containers_outlive_their_containerd_on_cgroup_v1() -> Result<()> {
        live_containers_outlive_their_containerd(CgroupView::V1)
    }

    #[test]
    fn a_creation_in_flight_becomes_a_running_container() -> Result<()> {
        let containerd = containerd(CgroupView::V2);
        let flight = containerd.create_in_flight("slow", Duration::from_mins(1))?;
        let (id, cgroup) = (flight.id.clone(), flight.cgroup.clone());
        assert_eq!(containerd.node().cgroups().members(&cgroup)?.len(), 1);
        assert!(!containerd.runc_state(&id).join("state.json").exists());
        let init = flight.finish(&containerd)?;
        assert!(init.is_alive()?);
        Ok(())
    }

    #[test]
    fn an_abandoned_creation_leaves_nothing() -> Result<()> {
        let containerd = containerd(CgroupView::V2);
        let traces = containerd.traces();
        drop(containerd.create_in_flight("dropped", Duration::from_mins(1))?);
        drop(containerd);
        assert_eq!(traces.left()?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn a_paused_containerd_takes_connections_and_does_not_answer() -> Result<()> {
        let containerd = containerd(CgroupView::V2);
        containerd.pause()?;
        assert!(std::os::unix::net::UnixStream::connect(containerd.address()).is_ok());
        containerd.resume()?;
        assert!(containerd.tasks()?.is_empty());
        Ok(())
    }

    fn a_watch_sees_the_death_of_a_bystander(view: CgroupView) -> Result<()> {
        if !view.is_available()? {
            assert!(Node::new(view).is_err(), "{view:?}");
            return Ok(());
        }
        let node = Node::new(view)?;
        let bystander = Bystander::start(&node)?;
        let watch = Watch::of([bystander.incarnation()]);
        assert!(watch.dead()?.is_empty());
        bystander.incarnation().kill()?;
        wait_until("its death", Duration::from_secs(5), || Ok(watch.dead()?.len() == 1))?;
        Ok(())
    }
    #[test]
    fn a_watch_sees_the_death_of_a_bystander_on_cgroup_v2() -> Result<()> {
        a_watch_sees_the_death_of_a_bystander(CgroupView::V2)
    }

    #[test]
    fn a_watch_sees_the_death_of_a_bystander_on_cgroup_v1() -> Result<()> {
        a_watch_sees_the_death_of_a_bystander(CgroupView::V1)
    }
}
