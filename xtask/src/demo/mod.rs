//! `cargo xtask demo`: the main job, on a throwaway containerd with leaks made by real crashes.
//!
//! Everything is made, watched and removed here; nothing else on the machine is touched, and the demo fails if
//! the product touched it. Ctrl-C ends it in order at any moment.

mod judge;
mod say;
mod stage;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use reaper_tests::{CgroupView, DaemonOptions, Inventory, Mode, Reaper, Watch, wait_until};

use self::judge::{Judge, text};
use self::say::Say;
use self::stage::Stage;
use self::summary::Summary;

const GRACE: Duration = Duration::from_secs(1);
const VERDICTS: Duration = Duration::from_mins(1);

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Which cgroup layout the containers see; v2 where it can be mounted, else v1
    #[arg(long)]
    cgroup: Option<View>,
    /// Print one JSON object as the last line; the story goes to standard error
    #[arg(long)]
    json: bool,
    /// Keep the directory with logs and the audit log, and print where it is
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum View {
    /// v1, or hybrid with v1 controllers, as the machine has it
    V1,
    /// v2 alone
    V2,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut say = Say::new(args.json)?;
    crate::setup::ensure()?;
    let product = crate::build::product()?;
    let view = match args.cgroup {
        Some(View::V1) => CgroupView::V1,
        Some(View::V2) => CgroupView::V2,
        None => CgroupView::preferred()?,
    };
    let summary = play(&mut say, view, product, args.keep)?;
    let verdict = summary.verdict();
    say.line(if verdict.is_ok() { "Done: every leak is gone, nothing else was touched." } else { "FAILED" });
    if args.json {
        say::result(&serde_json::to_string(&summary).context("write the summary")?);
    }
    verdict
}

/// The whole story; what it made is removed on every way out.
fn play(say: &mut Say, view: CgroupView, product: PathBuf, keep: bool) -> Result<Summary> {
    let (others, cgroups) = (Watch::machine()?, Inventory::take()?);
    say.step("A private containerd with five live containers, and neighbours that must not be touched");
    let mut stage = Stage::set(say, view, keep)?;
    let reaper = Reaper::new(product, &stage.containerd);
    let mut judge = Judge::new(reaper);
    let mut summary = Summary { live_before: stage.live_count()?, ..Summary::default() };

    say.step("cgroup-reaper in observe mode: it watches, and writes down what it would do");
    let daemon = judge.reaper.daemon(&options(Mode::Observe))?;
    say.line(&format!("running as process {}", daemon.pid()));

    say.step("Real crashes: runc create, runc delete and shims end by SIGKILL at the worst moment");
    stage.leak(say)?;
    summary.made = stage.made();

    say.step("What it finds: scan, and explain for one of them");
    observe(say, &stage, &judge, &mut summary)?;
    daemon.stop()?;

    say.step("What the leaks cost: containerd is restarted");
    summary.containerd_start_ms.leaked = stage.restart(say)?;

    say.step("cgroup-reaper in enforce mode: it reaps what it has proved");
    let daemon = judge.reaper.daemon(&options(Mode::Enforce))?;
    enforce(say, &stage, &mut judge)?;
    show_metrics(say, &daemon.get("/metrics")?.1);
    daemon.stop()?;

    say.step("What is true now");
    summary.containerd_start_ms.reaped = stage.restart(say)?;
    judge.fill(&stage, &others, &mut summary)?;
    summary.live_after = stage.live_count()?;
    summary.left_over = stage.leaks_left()?;
    show_result(say, &stage, &summary, &cgroups)?;

    say.step("Everything that was made is removed");
    summary.left_over.extend(stage.clear()?);
    say.line(&format!("left over          {}", summary.left_over.len()));
    Ok(summary)
}

const fn options(mode: Mode) -> DaemonOptions {
    DaemonOptions { mode, grace: GRACE, interval: Duration::from_secs(1) }
}

fn observe(say: &mut Say, stage: &Stage, judge: &Judge, summary: &mut Summary) -> Result<()> {
    let mut confirmed = Vec::new();
    let waited = wait_until("all leaks confirmed by scan", VERDICTS, || {
        say.tick()?;
        confirmed = judge.confirmed(stage)?;
        Ok(confirmed.len() >= stage.leaks.len())
    });
    say.quote(&judge.scan_table()?);
    waited?;
    summary.confirmed = confirmed.len();
    if let Some(first) = confirmed.first() {
        say.quote(&judge.explain(first)?);
    }
    ensure!(stage.leaks_left()?.len() == stage.leaks.len(), "observe mode changed something");
    Ok(())
}

fn enforce(say: &mut Say, stage: &Stage, judge: &mut Judge) -> Result<()> {
    // What is still there after this time is counted as left over, not hidden in an error.
    let gone = wait_until("all leaks gone in every hierarchy", VERDICTS, || {
        say.tick()?;
        judge.read_audit()?;
        Ok(stage.leaks_left()?.is_empty() && judge.outcomes().count() >= stage.leaks.len())
    });
    say.check()?;
    judge.read_audit()?;
    for record in judge.outcomes() {
        say.line(&format!(
            "{:<22} {:<36} {} in {} ms",
            text(record, "/target/kind"),
            text(record, "/target/container"),
            text(record, "/outcome"),
            text(record, "/dur_ms"),
        ));
    }
    if let Err(error) = gone {
        say.line(&format!("{error:#}"));
    }
    Ok(())
}

fn show_metrics(say: &mut Say, exposition: &str) {
    let telling = |line: &&str| {
        let words = ["reap", "leak", "confirmed"];
        !line.starts_with('#')
            && !line.ends_with(" 0")
            && !line.contains("_bucket")
            && words.iter().any(|word| line.trim_start_matches("cgroup_reaper_").contains(word))
    };
    let lines: Vec<&str> = exposition.lines().filter(telling).take(8).collect();
    say.quote(&lines.join("\n"));
}

fn show_result(say: &mut Say, stage: &Stage, summary: &Summary, before: &Inventory) -> Result<()> {
    say.line(&format!("leaks reaped       {} of {}", summary.reaped, stage.leaks.len()));
    say.line(&format!(
        "containerd starts  {} ms with the leaks, {} ms without (first start {} ms)",
        summary.containerd_start_ms.leaked,
        summary.containerd_start_ms.reaped,
        stage.containerd.first_start().as_millis(),
    ));
    say.line(&format!("live containers    {} before, {} now", summary.live_before, summary.live_after));
    say.line(&format!("bystanders hit     {}", summary.bystanders_hit));
    // Others on the machine may remove cgroups of their own at any time: said, not judged.
    let vanished = before.missing_from(&Inventory::take()?).len();
    say.line(&format!("other cgroups      {vanished} removed by their owners meanwhile"));
    Ok(())
}
