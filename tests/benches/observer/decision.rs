//! From the kernel's stamp to the verdict: real leaks, and a daemon that is told by its probes.
//!
//! The clock starts with the end of the last process that worked for the container: before that the runtime may still
//! be cleaning up, and no verdict is due. It stops at the daemon's record of the confirmation. In between are the grace
//! and the gap between the two looks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use reaper_tests::{CgroupView, Containerd, Crash, DaemonOptions, Mode, Node, Reaper, read_audit, wait_for};
use reaper_userspace::event::{Event, Occurrence};
use reaper_userspace::ident::Tgid;
use reaper_userspace::policy::Policy;
use reaper_userspace::probe::Rings;

use crate::stage::{exact, probe, rank};
use crate::summary::Summary;

/// They stay, so each look is longer than the one before.
const LEAKS: usize = 25;
const LIMIT: Duration = Duration::from_secs(30);
/// The daemon looks when it is told to, never by itself.
const NEVER: Duration = Duration::from_mins(30);

/// Last end of a process of a runtime, by container.
type Ends = Arc<Mutex<BTreeMap<String, u64>>>;

pub(crate) async fn run(product: &Path, summary: &mut Summary) -> Result<()> {
    for grace in [Duration::ZERO, Duration::from_millis(100)] {
        let late = measure(product, grace).await?;
        let (p50, p99) = (rank(&late, 500), rank(&late, 990));
        let name = format!("kernel to verdict beyond the grace of {} ms", grace.as_millis());
        println!("{name}: p50 {p50:.0} ms, p99 {p99:.0} ms, of {LEAKS} leaks");
        summary.judge(format!("{name}, p50"), p50, "ms", 250.0);
        summary.tell(format!("{name}, p99"), p99, "ms");
    }
    summary.tell("  of which between the two looks at least", exact(gap()), "ms");
    Ok(())
}

fn gap() -> u64 {
    u64::try_from(Policy::default().look_gap.as_millis()).unwrap_or_default()
}

async fn measure(product: &Path, grace: Duration) -> Result<Vec<f64>> {
    let (_probe, rings) = probe()?;
    let ends = Ends::default();
    let kept = Arc::clone(&ends);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let leaks = std::thread::spawn({
        let product = product.to_owned();
        move || {
            let late = make(&product, grace, &ends);
            // The reader ends by itself when nobody stops it.
            let _nobody_reads = stop.send(()).is_err();
            late
        }
    });
    tokio::select! {
        read = follow(rings, &kept) => read?,
        _ = stopped => {}
    }
    leaks.join().map_err(|_panic| anyhow::anyhow!("the maker of leaks panicked"))?
}

/// Milliseconds beyond the grace, leak by leak.
fn make(product: &Path, grace: Duration, ends: &Ends) -> Result<Vec<f64>> {
    let containerd = Containerd::start(Node::new(CgroupView::preferred()?)?)?;
    let reaper = Reaper::new(product.to_owned(), &containerd);
    let options = DaemonOptions { mode: Mode::Observe, grace, interval: NEVER };
    let daemon = reaper.daemon_with(&options, &["--probes", "btf"])?;
    let mut late = vec![];
    for number in 0..LEAKS {
        let crash = if number % 2 == 0 { Crash::FrozenCreate } else { Crash::ThawedCreate };
        let leak = containerd.crash(&format!("d{number}"), crash)?.id;
        let confirmed = wait_for("a verdict", LIMIT, || confirmed(&reaper.audit_log(), &leak))?;
        let ended = ends.lock().unwrap_or_else(PoisonError::into_inner).get(&leak).copied();
        let ended = ended.with_context(|| format!("no process of {leak} was seen to end"))?;
        let nanos = confirmed.saturating_sub(ended);
        late.push(exact(nanos) / 1e6 - grace.as_secs_f64() * 1e3);
    }
    daemon.stop()?;
    Ok(late)
}

/// When the daemon reached its verdict, in nanoseconds since boot.
fn confirmed(log: &Path, id: &str) -> Result<Option<u64>> {
    let records = read_audit(log)?;
    let found = records.iter().find(|record| {
        record["type"] == "leak.confirmed" && record.pointer("/target/container").is_some_and(|it| it == id)
    });
    Ok(found.and_then(|record| record.get("mono_ns")?.as_u64()))
}

/// Which container a runtime's process worked for is in its arguments, while it lives.
async fn follow(mut rings: Rings, ends: &Ends) -> Result<()> {
    let mut works = BTreeMap::new();
    loop {
        for event in rings.next_batch().await? {
            note(&event, &mut works, ends);
        }
    }
}

fn note(event: &Event, works: &mut BTreeMap<Tgid, String>, ends: &Ends) {
    match event.what {
        Occurrence::Execed { process, .. } => {
            let argv = fs::read_to_string(format!("/proc/{}/cmdline", process.tgid)).unwrap_or_default();
            let id = argv.split('\0').find(|word| is_ours(word));
            if let Some(id) = id {
                works.insert(process.tgid, id.to_owned());
            }
        }
        Occurrence::Exited { process, .. } => {
            if let Some(id) = works.remove(&process.tgid) {
                ends.lock().unwrap_or_else(PoisonError::into_inner).insert(id, event.at.as_nanos());
            }
        }
        Occurrence::Forked { .. }
        | Occurrence::Killed { .. }
        | Occurrence::Unidentified { .. }
        | Occurrence::CgroupMade { .. }
        | Occurrence::CgroupRemoved { .. }
        | Occurrence::CgroupPopulated { .. }
        | Occurrence::CgroupFrozen { .. } => {}
    }
}

/// The id of one of our containers: the name of the node, and a number.
fn is_ours(word: &str) -> bool {
    word.rsplit_once("-d")
        .is_some_and(|(node, number)| node.starts_with("reaper-") && number.parse::<usize>().is_ok())
}
