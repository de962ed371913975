//! `reap`: reap leaks now, by hand, through the same guards as the daemon.

use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::Status;
use super::find;
use super::options::{AuditLog, Judgement, Node, node_name};
use super::output::print;
use super::scan::two_looks;
use crate::audit::{Journal, Triggered};
use crate::daemon::act::{Acted, Unrecorded, carry_out};
use crate::daemon::engine::{Engine, Judged, Round};
use crate::daemon::{journal, recovery};
use crate::leak::{LeakKind, Outcome};
use crate::plan::{ReapPlan, Standing, Step, permit};
use crate::policy::{Mode, Policy};
use crate::verdict::{Freshness, LeakProof, Verdict};

/// Options of `reap`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Which: short names, container ids or their beginnings, cgroup paths
    #[arg(required_unless_present = "all")]
    ids: Vec<String>,
    /// Every confirmed leak
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// With --all: only this kind (repeatable)
    #[arg(long, requires = "all", value_parser = kind)]
    kind: Vec<LeakKind>,
    /// Go through everything up to the first step, and say what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    judgement: Judgement,
    #[command(flatten)]
    audit: AuditLog,
}

fn kind(word: &str) -> Result<LeakKind, String> {
    LeakKind::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or_else(|| {
        let known: Vec<&str> = LeakKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("no such kind; there are {}", known.join(", "))
    })
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    let policy = Policy { mode: Mode::Enforce, ..args.judgement.policy() };
    let watch = args.judgement.watch(&policy);
    let mut engine = args.node.engine(policy)?;
    let round = two_looks(&mut engine, watch).await;
    let (proofs, mut refused) = chosen(&args, &round)?;
    let sweep = permit(proofs, engine.policy(), &Standing::default());
    for refusal in &sweep.refused {
        print(&format!("{}: refused, {}: {}\n", refusal.plan.id(), refusal.veto.guard, refusal.veto.detail))?;
        refused = true;
    }
    if args.dry_run {
        sweep.permitted.iter().try_for_each(|plan| print(&would(plan)))?;
        return Ok(if refused { Status::Refused } else { Status::Success });
    }
    let mut status = if refused { Status::Refused } else { Status::Success };
    if !sweep.permitted.is_empty() {
        let mut journal = open_journal(&args, &engine)?;
        for plan in sweep.permitted {
            status = worse(status, reap_one(&mut engine, &mut journal, plan).await?);
        }
    }
    Ok(status)
}

/// The proofs of what was named; says why the others are none.
fn chosen(args: &Args, round: &Round) -> anyhow::Result<(Vec<LeakProof>, bool)> {
    let named: Vec<&Judged> = if args.all {
        round.judged.iter().collect()
    } else {
        args.ids.iter().map(|id| find::judged(round, id)).collect::<anyhow::Result<_>>()?
    };
    let (mut proofs, mut refused) = (vec![], false);
    for judged in named {
        match &judged.verdict {
            Verdict::Leaked(proof) if args.kind.is_empty() || args.kind.contains(&proof.kind()) => {
                proofs.push((**proof).clone());
            }
            Verdict::Leaked(_) => {}
            Verdict::Live(_) | Verdict::Held { .. } if args.all => {}
            Verdict::Live(owner) => {
                refused = true;
                print(&format!("{}: refused, in use: {owner}\n", judged.id))?;
            }
            Verdict::Held { vetoes, .. } => {
                refused = true;
                for veto in vetoes {
                    print(&format!("{}: refused, {}: {}\n", judged.id, veto.guard, veto.detail))?;
                }
            }
        }
    }
    Ok((proofs, refused))
}

fn would(plan: &ReapPlan) -> String {
    let steps: Vec<&str> = plan.steps().iter().map(Step::op).collect();
    let sighting = plan.proof().sighting();
    let members: Vec<String> = plan.proof().members().map(|member| member.to_string()).collect();
    format!(
        "{}: would {} {} ({}), processes {}\n",
        plan.id(),
        steps.join(", "),
        sighting.cgroup,
        sighting.container,
        if members.is_empty() { "none".to_owned() } else { members.join(" ") }
    )
}

fn open_journal(args: &Args, engine: &Engine) -> anyhow::Result<Journal> {
    let node = crate::audit::Node { boot: engine.boot().to_owned(), name: node_name() };
    let (mut journal, open) = journal::open(&args.audit.audit_log, node).with_context(|| {
        "nothing is reaped without an audit log; name one with --audit-log (the daemon's is in use while it runs)"
    })?;
    recovery::close(&mut journal, open, engine.boot(), &engine.layout())
        .context("acts of an earlier run stay open")?;
    Ok(journal)
}

async fn reap_one(engine: &mut Engine, journal: &mut Journal, plan: ReapPlan) -> anyhow::Result<Status> {
    let id = plan.id().clone();
    let uid = Some(rustix::process::getuid().as_raw());
    let trigger = crate::audit::Trigger { by: Triggered::Operator, uid, rule: plan.proof().cause() };
    match carry_out(engine, journal, plan, trigger, &Freshness::Fresh).await {
        Acted::Done { report, outcome, unrecorded } => {
            print(&format!("{id}: {} in {:.1?}\n", report.summary(), report.took))?;
            if let Some(Unrecorded { error, .. }) = unrecorded {
                return Err(error).context("the act was carried out, its outcome could not be recorded");
            }
            Ok(if outcome == Outcome::Reaped { Status::Success } else { Status::ReapFailed })
        }
        Acted::Stopped(veto) => {
            print(&format!("{id}: refused, {}: {}\n", veto.guard, veto.detail))?;
            Ok(Status::Refused)
        }
        Acted::Unrecordable(error) => Err(error).context("nothing was done: it could not be recorded"),
    }
}

fn worse(one: Status, other: Status) -> Status {
    if other.code() > one.code() { other } else { one }
}
