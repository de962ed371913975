//! `reap`: reap leaks now, by hand, through the same guards as the daemon.

use std::path::Path;

use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::Status;
use super::find::{self, Found};
use super::options::{AuditLog, Judgement, Node, node_name};
use super::output::print;
use super::scan::two_looks;
use crate::audit::{Journal, Triggered};
use crate::daemon::act::{Acted, Unrecorded, carry_out};
use crate::daemon::engine::{Engine, Judged, Round, Seek};
use crate::daemon::{journal, recovery};
use crate::fact::{BundleSighting, Subject};
use crate::ident::LeakId;
use crate::leak::{LeakKind, Outcome};
use crate::plan::{ReapPlan, Refusal, Standing, Step, permit};
use crate::policy::{Mode, Policy};
use crate::reap::Reap;
use crate::verdict::{Freshness, LeakProof, Verdict};

/// Options of `reap`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Which: short names, container ids or their beginnings, paths
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
    let chosen = chosen(&args, &round)?;
    let mut hand = Hand { engine, journal: None, args: &args, status: Status::Success };
    if chosen.refused {
        hand.status = Status::Refused;
    }
    hand.reap(chosen.containers).await?;
    hand.reap(chosen.bundles).await?;
    Ok(hand.status)
}

/// The proofs of what was named.
#[derive(Debug, Default)]
struct Chosen {
    containers: Vec<LeakProof>,
    bundles: Vec<LeakProof<BundleSighting>>,
    /// Something that was named is no proven leak.
    refused: bool,
}

/// Says why something that was named is no proven leak.
fn chosen(args: &Args, round: &Round) -> anyhow::Result<Chosen> {
    let named: Vec<Found<'_>> = if args.all {
        Found::all(round).collect()
    } else {
        args.ids.iter().map(|id| find::judged(round, id)).collect::<anyhow::Result<_>>()?
    };
    let mut chosen = Chosen::default();
    for found in named {
        match found {
            Found::Container(judged) => {
                chosen.refused |= refuse(args, &judged.id, &judged.verdict)?;
                chosen.containers.extend(proof(args, judged));
            }
            Found::Bundle(judged) => {
                chosen.refused |= refuse(args, &judged.id, &judged.verdict)?;
                chosen.bundles.extend(proof(args, judged));
            }
        }
    }
    Ok(chosen)
}

fn proof<S: Clone>(args: &Args, judged: &Judged<S>) -> Option<LeakProof<S>> {
    let wanted = |proof: &&LeakProof<S>| args.kind.is_empty() || args.kind.contains(&proof.kind());
    judged.proof().filter(wanted).cloned()
}

/// True if it was named, and is held back or in use.
fn refuse<S>(args: &Args, id: &LeakId, verdict: &Verdict<S>) -> anyhow::Result<bool> {
    match verdict {
        Verdict::Leaked(_) => return Ok(false),
        Verdict::Live(_) | Verdict::Held { .. } if args.all => return Ok(false),
        Verdict::Live(owner) => print(&format!("{id}: refused, in use: {owner}\n"))?,
        Verdict::Held { vetoes, .. } => {
            for veto in vetoes {
                print(&format!("{id}: refused, {}: {}\n", veto.guard, veto.detail))?;
            }
        }
    }
    Ok(true)
}

/// Reaps what was chosen, one sort after the other.
#[derive(Debug)]
struct Hand<'a> {
    engine: Engine,
    journal: Option<Journal>,
    args: &'a Args,
    status: Status,
}

// === impl Hand ===

impl Hand<'_> {
    async fn reap<S: Seek + Reap>(&mut self, proofs: Vec<LeakProof<S>>) -> anyhow::Result<()> {
        let sweep = permit(proofs, self.engine.policy(), &Standing::default());
        for Refusal { plan, veto } in &sweep.refused {
            print(&format!("{}: refused, {}: {}\n", plan.id(), veto.guard, veto.detail))?;
            self.status = worse(self.status, Status::Refused);
        }
        for plan in sweep.permitted {
            if self.args.dry_run {
                print(&would(&plan))?;
            } else {
                self.reap_one(plan).await?;
            }
        }
        Ok(())
    }

    async fn reap_one<S: Seek + Reap>(&mut self, plan: ReapPlan<S>) -> anyhow::Result<()> {
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => open_journal(&self.args.audit.audit_log, &self.engine)?,
        };
        let status = reap_one(&mut self.engine, &mut journal, plan).await?;
        self.journal = Some(journal);
        self.status = worse(self.status, status);
        Ok(())
    }
}

fn would<S: Subject>(plan: &ReapPlan<S>) -> String {
    let steps: Vec<&str> = plan.steps().iter().map(Step::op).collect();
    let sighting = plan.proof().sighting();
    let members: Vec<String> = plan.proof().members().map(|member| member.to_string()).collect();
    format!(
        "{}: would {} {} ({}), processes {}\n",
        plan.id(),
        steps.join(", "),
        sighting.place(),
        sighting.container(),
        if members.is_empty() { "none".to_owned() } else { members.join(" ") }
    )
}

pub(super) fn open_journal(audit_log: &Path, engine: &Engine) -> anyhow::Result<Journal> {
    let node = crate::audit::Node { boot: engine.boot().to_owned(), name: node_name() };
    let (mut journal, open) = journal::open(audit_log, node).with_context(|| {
        "nothing is reaped without an audit log; name one with --audit-log (the daemon's is in use while it runs)"
    })?;
    recovery::close(&mut journal, open, engine.boot(), &engine.layout())
        .context("acts of an earlier run stay open")?;
    Ok(journal)
}

pub(super) async fn reap_one<S: Seek + Reap>(
    engine: &mut Engine,
    journal: &mut Journal,
    plan: ReapPlan<S>,
) -> anyhow::Result<Status> {
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

pub(super) fn worse(one: Status, other: Status) -> Status {
    if other.code() > one.code() { other } else { one }
}
