//! How late the reader is on a machine that does nothing else for it: cgroups made and removed, one a millisecond.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::timeout;

use crate::place::Place;
use crate::stage::{Lags, probe};
use crate::summary::Summary;

const ROUNDS: usize = 1_000;

pub(crate) async fn run(summary: &mut Summary) -> Result<()> {
    let place = Place::new("lag")?;
    let (mut probe, mut rings) = probe()?;
    probe.track(place.cgroup()?)?;
    let mut lags = Lags::default();
    // Made by another thread: the reader must be asleep when it happens.
    let maker = std::thread::spawn(move || -> Result<Place> {
        for round in 0..ROUNDS {
            drop(place.child(&format!("c{round}"))?);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(place)
    });
    for _ in 0..ROUNDS.saturating_mul(2) {
        if lags.len() >= ROUNDS.saturating_mul(2) {
            break;
        }
        let events = timeout(Duration::from_secs(10), rings.next_batch()).await.context("no event")??;
        for event in &events {
            lags.add(event);
        }
    }
    drop(maker.join().map_err(|_panic| anyhow::anyhow!("the maker panicked"))??);
    println!("{}", lags.show("from the kernel's stamp to the reader, one cgroup a millisecond"));
    summary.tell("kernel to reader, one cgroup a millisecond, p50", lags.rank(500), "us");
    summary.tell("kernel to reader, one cgroup a millisecond, p99", lags.rank(990), "us");
    Ok(())
}
