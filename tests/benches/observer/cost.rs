//! What a process that concerns nobody pays for being observed.
//!
//! `bpf_stats` reads the clock before and after each run of a program, so its numbers hold one reading of the clock;
//! the floor is what they say of a program that does nothing. Other work on the machine runs the same programs and
//! disturbs them: many short windows, of which the least disturbed and the middle one are given.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, ensure};
use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};

use crate::bpftrace::Bpftrace;
use crate::floor::Nothing;
use crate::stage::{Make, Storm, exact, least, median, probe};
use crate::summary::Summary;

const WINDOWS: usize = 60;
const PROCESSES: u64 = 400;
/// Nanoseconds for the three together.
const TARGET: f64 = 500.0;

/// Tracepoint, and what happens there; in the order in which the numbers of the rest are.
const WHAT: [(&std::ffi::CStr, &str); 3] =
    [(c"sched_process_fork", "fork"), (c"sched_process_exec", "exec"), (c"sched_process_exit", "exit")];

/// A descriptor of a program that some process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    pid: u32,
    fd: i32,
}

/// Time and runs of a program so far.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    nanos: u64,
    runs: u64,
}

type Costs = Vec<Vec<f64>>;

pub(crate) fn run(summary: &mut Summary) -> Result<()> {
    let _counting = enable_stats(Stats::RunTime).context("bpf_stats")?;
    println!(
        "cost of what concerns nobody, {WINDOWS} windows of {PROCESSES} processes, ns a run (bpf_stats)"
    );
    let nothing = floor()?;
    show("an empty program", &nothing);
    let ours = observer()?;
    show("cgroup-reaper", &ours);
    summary.judge(
        "fork, exec and exit that concern nobody, middle window",
        together(&ours, median),
        "ns",
        TARGET,
    );
    summary.tell("  least disturbed window", together(&ours, least), "ns");
    summary.tell("  an empty program, middle window", together(&nothing, median), "ns");
    match bpftrace() {
        Ok(costs) => {
            show("bpftrace", &costs);
            summary.tell("  bpftrace, middle window", together(&costs, median), "ns");
        }
        Err(error) => println!("  bpftrace: not measured: {error:#}"),
    }
    Ok(())
}

fn observer() -> Result<Costs> {
    let _probe = probe()?;
    // Loaded in the order exit, fork, exec.
    let mut held = of_processes(std::process::id())?;
    ensure!(held.len() == 3, "three programs on processes, not {held:?}");
    held.rotate_left(1);
    measure(&held)
}

fn floor() -> Result<Costs> {
    let attached = WHAT.iter().map(|(name, _)| Nothing::attach(name)).collect::<Result<Vec<_>>>()?;
    let pid = std::process::id();
    let held: Vec<_> = attached.iter().map(|one| Held { pid, fd: one.program().as_raw_fd() }).collect();
    measure(&held)
}

fn bpftrace() -> Result<Costs> {
    let bpftrace = Bpftrace::attach()?;
    // Loaded in the order exec, exit, fork.
    let mut held = of_processes(bpftrace.pid())?;
    ensure!(held.len() == 3, "three programs of bpftrace, not {held:?}");
    held.rotate_right(1);
    measure(&held)
}

/// For each of the three, nanoseconds a run in each window.
fn measure(programs: &[Held]) -> Result<Costs> {
    let mut storm = Storm::new(Make::Exec, PROCESSES)?;
    storm.blow()?;
    let mut costs = vec![vec![]; programs.len()];
    for _ in 0..WINDOWS {
        let before = spent(programs)?;
        storm.blow()?;
        for ((cost, before), after) in costs.iter_mut().zip(before).zip(spent(programs)?) {
            let runs = after.runs.saturating_sub(before.runs);
            ensure!(runs >= PROCESSES, "{runs} runs for {PROCESSES} processes");
            cost.push(exact(after.nanos.saturating_sub(before.nanos)) / exact(runs));
        }
    }
    Ok(costs)
}

fn spent(programs: &[Held]) -> Result<Vec<Spent>> {
    let number = |text: &str, name: &str| -> Result<u64> {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(found.with_context(|| format!("no {name} in fdinfo"))?.trim().parse()?)
    };
    let read = |Held { pid, fd }: &Held| {
        let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
        Ok(Spent { nanos: number(&text, "run_time_ns:")?, runs: number(&text, "run_cnt:")? })
    };
    programs.iter().map(read).collect()
}

/// The programs on processes that a process holds, in order of loading.
fn of_processes(pid: u32) -> Result<Vec<Held>> {
    let mut names = BTreeMap::new();
    // Programs of others come and go meanwhile.
    for program in loaded_programs().flatten() {
        names.insert(program.id(), program.name_as_str().unwrap_or_default().to_owned());
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let fd: i32 = entry?.file_name().to_string_lossy().parse()?;
        let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
        let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
        let is_program = text.lines().any(|line| line.starts_with("run_cnt:"));
        if let (Some(id), true) = (id, is_program) {
            found.insert(id.trim().parse::<u32>()?, Held { pid, fd });
        }
    }
    let on_processes = |id: &u32| names.get(id).is_some_and(|name| name.starts_with("sched_process"));
    Ok(found.into_iter().filter(|(id, _)| on_processes(id)).map(|(_, held)| held).collect())
}

fn together(costs: &[Vec<f64>], pick: fn(&[f64]) -> f64) -> f64 {
    costs.iter().map(|cost| pick(cost)).sum()
}

fn show(whose: &str, costs: &[Vec<f64>]) {
    show_row(whose, "least", costs, least);
    show_row(whose, "median", costs, median);
}

fn show_row(whose: &str, which: &str, costs: &[Vec<f64>], pick: fn(&[f64]) -> f64) {
    let each: Vec<f64> = costs.iter().map(|cost| pick(cost)).collect();
    let words = WHAT.iter().zip(&each).map(|((_, what), cost)| format!("{what} {cost:4.0}"));
    let (words, sum) = (words.collect::<Vec<_>>().join("  "), together(costs, pick));
    println!("  {whose:18} {which:7} {words}  together {sum:4.0}");
}
