//! How long a reap takes, beside the least that ends a cgroup: `cargo xtask bench reap`.
//!
//! `loop.c` is compiled here; one leak for it and one for the product take turns, so that a slow moment of the machine
//! slows both. The product's time is that of the whole act, from the first step to the last, and again with both
//! records on disk; what was asked before (the two looks) is not in it.
#![expect(clippy::disallowed_methods, reason = "a measurement makes and removes what is reaped")]
#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

#[path = "../../tests/by_hand/mod.rs"]
mod by_hand;
mod crowd;
mod leaderless;
mod product;
mod report;
mod rival;
mod view;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crowd::Crowd;
use product::Product;
use report::{Row, Sample};
use rival::Rival;
use view::View;

/// What is measured.
#[derive(Debug, Parser)]
struct Args {
    /// Only leaks of so many processes
    #[arg(long)]
    only: Option<usize>,
    /// How many leaks each way; fewer of the large ones
    #[arg(long, default_value_t = 60)]
    leaks: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const COUNTS: [usize; 4] = [1, 10, 100, 1_000];
/// A leak is older than the 10 ms for which the kernel holds back a second notification of `cgroup.events`.
const AGE: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let args = Args::parse();
    // Hierarchies of our own mounting, for us alone; the mounts go with the process.
    unshare(CloneFlags::CLONE_NEWNS).context("unshare")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("private mounts")?;
    let mut rival = Rival::compile()?;
    let mut product = Product::new()?;
    let mut rows = vec![];
    println!("{}", report::TITLE);
    for view in View::all()? {
        for frozen in [true, false] {
            for count in COUNTS.into_iter().filter(|count| args.only.is_none_or(|only| only == *count)) {
                let samples = measure(&view, frozen, count, args.leaks, &mut rival, &mut product)?;
                let row = Row::new(view.name, frozen, count, &samples);
                println!("{row}");
                rows.push(row);
            }
        }
        println!("{}", leaderless::both_ways(&view, &mut rival, &mut product)?);
    }
    println!("{}", report::targets(&rows));
    Ok(())
}

fn measure(
    view: &View,
    frozen: bool,
    count: usize,
    leaks: usize,
    rival: &mut Rival,
    product: &mut Product,
) -> Result<Vec<Sample>> {
    let turns = leaks.saturating_mul(30).checked_div(count).map_or(leaks, |turns| turns.max(5).min(leaks));
    let mut samples = vec![];
    for turn in 0..turns {
        let mut sample = Sample::default();
        // Who is first changes, as one may leave the other something to wait for.
        for ours in [turn % 2 == 0, turn % 2 != 0] {
            let crowd = Crowd::inside(view, count)?;
            if frozen {
                view.freeze()?;
            }
            std::thread::sleep(AGE);
            if ours {
                (sample.act, sample.audited) = product.reap(view)?;
            } else {
                sample.rival = rival.end(view)?.context("the C loop did not end it")?;
            }
            drop(crowd);
        }
        samples.push(sample);
    }
    Ok(samples)
}
