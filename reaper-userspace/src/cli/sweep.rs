//! `sweep`: before containerd starts, reap what only dead shims left, so that it need not stumble over it.
//!
//! containerd 1.6 tries for five seconds to delete each bundle whose rootfs is busy, at every start. Here its absence is
//! proven first (see `survey`) and again before every act; its answers are then not needed, those of shims and of the
//! runtime's state are. Everything else is as in `reap`: two looks, the same guards, the same records.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;

use super::Status;
use super::options::{Judgement, Node, duration};
use super::output::print;
use super::reap::{Orders, open_journal, reap_one, worse};
use super::scan::two_looks;
use crate::audit::Journal;
use crate::daemon::brakes::Braking;
use crate::daemon::clock;
use crate::daemon::engine::{Engine, Judged, Seek};
use crate::plan::{Refusal, Standing, permit};
use crate::policy::{Budget, Mode, Policy};
use crate::reap::{BOUND, Reap};
use crate::survey::{Expected, NotStopped};
use crate::time::BootTime;
use crate::verdict::Verdict;

/// A cgroup that is reaped leaves a dead bundle, that leaves nothing, and a last look sees it; one more for what a guard
/// held for a moment.
const ROUNDS: usize = 4;

/// Between two questions whether another containerd has finished loading.
const WAIT: Duration = Duration::from_millis(200);

/// Options of `sweep`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// When to end, finished or not: containerd waits for this
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    judgement: Judgement,
    /// Where every act is recorded; another file than the daemon's, which may be running
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/log/cgroup-reaper/sweep.jsonl",
        env = "CGROUP_REAPER_SWEEP_LOG"
    )]
    audit_log: PathBuf,
}

/// One sweep under way.
#[derive(Debug)]
struct Broom {
    engine: Engine,
    journal: Option<Journal>,
    audit_log: PathBuf,
    state_dir: PathBuf,
    deadline: BootTime,
    status: Status,
    reaped: usize,
    acts: usize,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    // Nothing rests on a containerd's word here, so its losing its state cannot make everything look leaked; and the
    // time is the budget.
    let unlimited = Budget { per_minute: u32::MAX, per_sweep: u32::MAX, ..Budget::default() };
    let policy = Policy { mode: Mode::Enforce, budget: unlimited, ..args.judgement.policy() };
    let policy = Policy { grace: args.judgement.named_grace().unwrap_or_default(), ..policy };
    let watch = args.judgement.watch(&policy);
    let deadline = clock::boot().after(args.timeout);
    let engine = args.node.engine_for(policy, Expected::Stopped)?;
    let mut broom = Broom {
        engine,
        journal: None,
        audit_log: args.audit_log,
        state_dir: args.node.state_dir,
        deadline,
        status: Status::Success,
        reaped: 0,
        acts: 0,
    };
    for _ in 0..ROUNDS {
        if !broom.round(watch).await? {
            break;
        }
    }
    print(&format!("sweep: {} reaped\n", broom.reaped))?;
    Ok(broom.status)
}

/// What has the shape of a leak, and stays.
fn say_held<S>(judged: &[Judged<S>]) -> anyhow::Result<()> {
    for one in judged {
        if let Verdict::Held { kind, vetoes, .. } = &one.verdict {
            let why: Vec<String> =
                vetoes.iter().map(|veto| format!("{}: {}", veto.guard, veto.detail)).collect();
            print(&format!("{}: {kind} left, {}\n", one.id, why.join("; ")))?;
        }
    }
    Ok(())
}

// === impl Broom ===

impl Broom {
    /// One round; the last one's status counts, as it sees what the others left. True if another may do more.
    async fn round(&mut self, watch: Duration) -> anyhow::Result<bool> {
        self.status = Status::Success;
        if let Err(why) = self.wait_for_absence().await {
            print(&format!("sweep: nothing more is done, {why}\n"))?;
            self.status = Status::Refused;
            return Ok(false);
        }
        let left = self.deadline.since(clock::boot());
        let looks = two_looks(&mut self.engine, watch);
        let Ok(round) = tokio::time::timeout(left, looks).await else {
            print("sweep: no time left to look\n")?;
            self.status = Status::LeaksFound;
            return Ok(false);
        };
        let before = self.acts;
        say_held(&round.judged)?;
        say_held(&round.bundles)?;
        self.reap(&round.judged).await?;
        self.reap(&round.bundles).await?;
        Ok(self.acts > before)
    }

    /// Another containerd on the node may be starting, and cannot be told from ours until it serves.
    async fn wait_for_absence(&self) -> Result<(), NotStopped> {
        loop {
            match self.engine.stopped() {
                Err(NotStopped::Unclear(_)) if clock::boot().after(WAIT) < self.deadline => {
                    tokio::time::sleep(WAIT).await;
                }
                answer => return answer,
            }
        }
    }

    async fn reap<S: Seek + Reap>(&mut self, judged: &[Judged<S>]) -> anyhow::Result<()> {
        let proofs = judged.iter().filter_map(|judged| judged.proof().cloned()).collect();
        let standing = Standing { paused: Braking::paused_by_hand(&self.state_dir), ..Standing::default() };
        let sweep = permit(proofs, self.engine.policy(), &standing);
        for Refusal { plan, veto } in &sweep.refused {
            print(&format!("{}: refused, {}: {}\n", plan.id(), veto.guard, veto.detail))?;
            self.status = worse(self.status, Status::Refused);
        }
        for plan in sweep.permitted {
            // An act that has begun is not broken off, so it must not begin too late.
            if clock::boot().after(BOUND) > self.deadline {
                print(&format!("{}: left, no time\n", plan.id()))?;
                self.status = worse(self.status, Status::LeaksFound);
                continue;
            }
            let mut journal = match self.journal.take() {
                Some(journal) => journal,
                None => open_journal(&self.audit_log, &self.engine)?,
            };
            let orders = Orders { state_dir: &self.state_dir, forced: None };
            let status = reap_one(&mut self.engine, &mut journal, plan, orders).await?;
            self.journal = Some(journal);
            self.acts = self.acts.saturating_add(1);
            self.reaped = self.reaped.saturating_add(usize::from(status == Status::Success));
            self.status = worse(self.status, status);
        }
        Ok(())
    }
}
