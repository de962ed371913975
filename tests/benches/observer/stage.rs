//! What is needed by every part: the object, and processes made on command.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use reaper_userspace::daemon::clock;
use reaper_userspace::event::Event;
use reaper_userspace::probe::{Level, Loaded, Probe};

/// What the storm makes each time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Make {
    /// A process that only ends.
    Fork,
    /// One that becomes `/bin/true`.
    Exec,
}

/// A program that makes processes on command, ended with its value.
pub(crate) struct Storm {
    child: Child,
    go: ChildStdin,
    took: BufReader<ChildStdout>,
}

// === impl Storm ===

impl Storm {
    pub(crate) fn new(make: Make, count: u64) -> Result<Self> {
        let mode = match make {
            Make::Fork => "fork",
            Make::Exec => "exec",
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_storm"))
            .args([mode, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the storm")?;
        let go = child.stdin.take().context("piped")?;
        let took = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Self { child, go, took })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts one storm; [`end`](Self::end) waits for it.
    pub(crate) fn begin(&mut self) -> Result<()> {
        writeln!(self.go, "go").context("start the storm")
    }

    /// How many nanoseconds it took.
    pub(crate) fn end(&mut self) -> Result<u64> {
        let mut line = String::new();
        ensure!(self.took.read_line(&mut line)? > 0, "the storm ended by itself");
        line.trim().parse().context("the storm's answer")
    }

    pub(crate) fn blow(&mut self) -> Result<u64> {
        self.begin()?;
        self.end()
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // Gone already: then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A probe with the object that `cargo xtask build` made.
pub(crate) fn probe() -> Result<Loaded> {
    let default = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bpf/reaper-ebpf.o");
    let path = std::env::var_os("REAPER_BPF_OBJECT").map_or(default, PathBuf::from);
    let object = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Probe::load(&object, Level::Btf)?)
}

/// How late events were.
#[derive(Debug, Default)]
pub(crate) struct Lags(Vec<f64>);

// === impl Lags ===

impl Lags {
    pub(crate) fn add(&mut self, event: &Event) {
        self.0.push(clock::boot().since(event.at).as_secs_f64() * 1e6);
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Microseconds that this many of 1,000 stay below.
    pub(crate) fn rank(&self, share: usize) -> f64 {
        rank(&self.0, share)
    }

    pub(crate) fn show(&self, what: &str) -> String {
        let [middle, most, nearly_all] = [500, 990, 999].map(|share| self.rank(share));
        format!("{what}: p50 {middle:.0} us, p99 {most:.0} us, p99.9 {nearly_all:.0} us")
    }
}

/// What this many of 1,000 stay below.
pub(crate) fn rank(numbers: &[f64], share: usize) -> f64 {
    let sorted = sorted(numbers);
    let index = sorted.len().saturating_mul(share) / 1000;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

pub(crate) fn sorted(numbers: &[f64]) -> Vec<f64> {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The middle one; of an even number the upper of the two.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    rank(numbers, 500)
}

/// The smallest.
pub(crate) fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Exact below 2^53, which is far above anything counted here.
pub(crate) fn exact(count: u64) -> f64 {
    let (high, low) =
        (u32::try_from(count >> 32).unwrap_or(u32::MAX), u32::try_from(count & 0xffff_ffff).unwrap_or(0));
    f64::from(high).mul_add(4_294_967_296.0, f64::from(low))
}
