//! The table, and what is to be reached.

use std::fmt;
use std::time::Duration;

pub(crate) const TITLE: &str = "\
medians, then the least, in ms; ratios to the C loop; `audited` is the act with both records on disk
cgroup leak     procs leaks | C loop     act  ratio audited  ratio | C loop     act  ratio audited  ratio";

/// One leak each way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) rival: Duration,
    pub(crate) act: Duration,
    pub(crate) audited: Duration,
}

#[derive(Debug)]
pub(crate) struct Row {
    view: &'static str,
    frozen: bool,
    count: usize,
    leaks: usize,
    median: Times,
    least: Times,
}

/// In milliseconds.
#[derive(Debug)]
struct Times {
    rival: f64,
    act: f64,
    audited: f64,
}

// === impl Row ===

impl Row {
    pub(crate) fn new(view: &'static str, frozen: bool, count: usize, samples: &[Sample]) -> Self {
        // Of an even number the upper of the two in the middle.
        let (median, least) = (Times::at(samples, samples.len() / 2), Times::at(samples, 0));
        Self { view, frozen, count, leaks: samples.len(), median, least }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, frozen, count, leaks, median, least } = self;
        let state = if *frozen { "frozen" } else { "running" };
        write!(f, "{view:<6} {state:<8} {count:>5} {leaks:>5} |{median} |{least}")
    }
}

// === impl Times ===

impl Times {
    /// Each of the three in its own order.
    fn at(samples: &[Sample], index: usize) -> Self {
        let of = |which: fn(&Sample) -> Duration| {
            let mut times: Vec<Duration> = samples.iter().map(which).collect();
            times.sort_unstable();
            times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
        };
        Self { rival: of(|one| one.rival), act: of(|one| one.act), audited: of(|one| one.audited) }
    }

    /// How many times as long as the C loop, without and with the records.
    fn ratios(&self) -> (f64, f64) {
        (self.act / self.rival, self.audited / self.rival)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { rival, act, audited }, (ratio, audited_ratio)) = (self, self.ratios());
        write!(f, "{rival:>7.3} {act:>7.3} {ratio:>6.2} {audited:>7.3} {audited_ratio:>6.2}")
    }
}

/// What is wanted of a row: view, processes, with records or without, at most how many times the C loop.
const TARGETS: [(&str, usize, bool, f64); 3] =
    [("v2", 1, false, 1.5), ("v2", 1, true, 4.0), ("v2", 100, false, 0.6)];

pub(crate) fn targets(rows: &[Row]) -> String {
    let mut lines = vec![];
    for (view, count, audited, most) in TARGETS {
        let row = rows.iter().find(|row| row.view == view && row.count == count && row.frozen);
        let Some(row) = row else { continue };
        let of = |times: &Times| if audited { times.ratios().1 } else { times.ratios().0 };
        let (median, least) = (of(&row.median), of(&row.least));
        let word = if median <= most { "reached" } else { "MISSED" };
        let with = if audited { " and both records" } else { "" };
        lines.push(format!(
            "target: {count} frozen, {view}, the act{with}: at most {most:.1}; median {median:.2}, least {least:.2}: {word}"
        ));
    }
    lines.join("\n")
}
