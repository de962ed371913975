//! Many processes that die in a watched cgroup, as children of a watched process, as fast as the kernel can: two
//! records each, none lost.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reaper_userspace::daemon::clock;
use reaper_userspace::event::Occurrence;
use reaper_userspace::ident::{Lookup, ProcessKey, Tgid};
use reaper_userspace::procfs;
use tokio::time::timeout;

use crate::place::Place;
use crate::stage::{Lags, Make, Storm, exact, probe};
use crate::summary::Summary;

/// Longest silence in the middle of a storm.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(count: u64, summary: &mut Summary) -> Result<()> {
    let place = Place::new("deaths")?;
    let (mut probe, mut rings) = probe()?;
    probe.track(place.cgroup()?)?;
    let mut storm = Storm::new(Make::Fork, count)?;
    place.add(storm.pid())?;
    let parent = key_of(storm.pid())?;
    probe.watch(parent)?;
    storm.begin()?;
    let begun = clock::boot();
    let (mut alive, mut born, mut died, mut lags) = (HashSet::new(), 0_u64, 0_u64, Lags::default());
    while died < count {
        let events = timeout(PATIENCE, rings.next_batch()).await.context("events stopped coming")??;
        for event in &events {
            match event.what {
                Occurrence::Forked { creator, child, born: at, .. } if creator == parent => {
                    born = born.saturating_add(u64::from(alive.insert((child, at))));
                }
                Occurrence::Exited { process, born: at, .. } => {
                    died = died.saturating_add(u64::from(alive.remove(&(process, at))));
                }
                // Of the storm itself, or of runtimes elsewhere on the machine.
                Occurrence::Forked { .. }
                | Occurrence::Execed { .. }
                | Occurrence::Killed { .. }
                | Occurrence::CgroupMade { .. }
                | Occurrence::CgroupRemoved { .. }
                | Occurrence::CgroupPopulated { .. }
                | Occurrence::CgroupFrozen { .. }
                | Occurrence::Unidentified { .. } => continue,
            }
            lags.add(event);
        }
        if probe.losses()?.total() > 0 {
            break;
        }
    }
    let took = clock::boot().since(begun);
    let lost = probe.losses()?;
    println!(
        "deaths in a watched cgroup: {died} of {count} reported with {born} births in {:.1} s, {} events lost; {}",
        took.as_secs_f64(),
        lost.total(),
        lags.show("from the kernel's stamp to the reader during it")
    );
    summary.judge(format!("events lost of {count} births and deaths"), exact(lost.total()), "", 0.0);
    summary.tell("kernel to reader during them, p99", lags.rank(990), "us");
    ensure!(lost.total() == 0, "lost: {lost:?}");
    ensure!((born, died) == (count, count), "births and deaths");
    storm.end()?;
    Ok(())
}

fn key_of(pid: u32) -> Result<ProcessKey> {
    let tgid = Tgid::new(pid.into()).context("a process number")?;
    match procfs::start_of(tgid) {
        Lookup::Found(start) => Ok(ProcessKey { tgid, start }),
        gone @ (Lookup::NotFound | Lookup::Unavailable(_)) => anyhow::bail!("process {pid}: {gone:?}"),
    }
}
