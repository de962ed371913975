//! `cargo xtask bench boot`: what dead bundles cost a start of containerd, and what `sweep` gives back.
//!
//! Three figures in one run on one private containerd: a clean start, a start with bundles whose rootfs is kept busy by
//! frozen half-created inits, and a start after `sweep`.
#![expect(clippy::print_stdout, reason = "a command speaks to the terminal")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args as ClapArgs;
use reaper_tests::{CgroupView, Containerd, Crash, Leak, Node, Reaper};

/// Clean starts vary by some ten milliseconds: the middle of three.
const CLEAN_STARTS: usize = 3;
const LIMIT: Duration = Duration::from_mins(2);

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// How many dead bundles
    #[arg(long, default_value_t = 20)]
    bundles: usize,
    /// Measure this cgroup-reaper instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    crate::setup::ensure()?;
    let product = args.binary.clone().map_or_else(crate::build::product, Ok)?;
    let containerd = Containerd::start(Node::new(CgroupView::preferred()?)?)?;
    println!("{}, {} bundles", containerd.version()?, args.bundles);
    let clean = clean_start(&containerd)?;
    show("clean start", clean);
    let leaks = busy(&containerd, args.bundles)?;
    let stock = containerd.restart()?;
    show("start with busy bundles", stock);
    containerd.stop()?;
    let swept = sweep(&Reaper::new(product, &containerd), args.bundles)?;
    show("sweep itself", swept);
    ensure!(leaks.iter().all(|leak| leak.bundle.exists()), "a bundle is gone: there is nothing to measure");
    let after = containerd.serve()?;
    show("start after sweep", after);
    ensure!(leaks.iter().all(|leak| !leak.bundle.exists()), "containerd left a bundle");
    let bundles = f64::from(u32::try_from(args.bundles.max(1)).context("so many bundles")?);
    let (left, busy) = (after.saturating_sub(clean), stock.saturating_sub(clean));
    println!(
        "a bundle costs {:.1} ms when left in place, {:.0} ms when busy",
        millis(left) / bundles,
        millis(busy) / bundles
    );
    Ok(())
}

fn show(what: &str, took: Duration) {
    println!("{what:<26} {:>10.1} ms", millis(took));
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

fn clean_start(containerd: &Containerd) -> Result<Duration> {
    let mut times = (0..CLEAN_STARTS).map(|_| containerd.restart()).collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    times.get(CLEAN_STARTS / 2).copied().context("no start was measured")
}

/// All at once: each is given up by the runtime after ten seconds only.
fn busy(containerd: &Containerd, count: usize) -> Result<Vec<Leak>> {
    std::thread::scope(|scope| {
        let make = |number| move || containerd.crash(&format!("busy{number}"), Crash::FrozenCreateBusyRootfs);
        let makers: Vec<_> = (0..count).map(|number| scope.spawn(make(number))).collect();
        makers
            .into_iter()
            .map(|maker| maker.join().map_err(|_payload| anyhow!("a leak maker panicked"))?)
            .collect()
    })
}

#[expect(clippy::disallowed_methods, reason = "measures")]
fn sweep(reaper: &Reaper, bundles: usize) -> Result<Duration> {
    let log = reaper.audit_log();
    let start = std::time::Instant::now();
    let finished =
        reaper.run(&["sweep", "--timeout", "60s", "--audit-log", &log.to_string_lossy()], LIMIT)?;
    let took = start.elapsed();
    ensure!(finished.stdout.contains(&format!("{bundles} reaped")), "{finished:?}");
    Ok(took)
}
