//! `reap`: reap leaks now, by hand, through the same guards as the daemon.

use std::path::Path;

use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::Status;
use super::find::{self, Found};
use super::force::{Force, Liftable};
use super::limits::Limits;
use super::options::{AuditLog, Judgement, Node, kind, node_name};
use super::output::print;
use super::scan::two_looks;
use crate::audit::{Forced, Journal, Trigger};
use crate::daemon::act::{Acted, Unrecorded, carry_out, rehearse, wait_for_others};
use crate::daemon::brakes::Braking;
use crate::daemon::engine::{Engine, Judged, Round, Seek};
use crate::daemon::holds::{Hold, Holds};
use crate::daemon::{clock, journal, recovery, who};
use crate::fact::{BundleSighting, Subject, UnitSighting};
use crate::ident::LeakId;
use crate::leak::{Guard, HoldKind, LeakKind, Outcome};
use crate::plan::{ReapPlan, Refusal, Standing, Step, permit};
use crate::policy::{Mode, Policy};
use crate::reap::{Reap, Rehearsal, Report, StepReport};
use crate::verdict::{Freshness, LeakProof, Verdict, Veto};

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
    /// Go through everything but the last calls: nothing is signalled, frozen, removed, unmounted or recorded
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    judgement: Judgement,
    #[command(flatten)]
    audit: AuditLog,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Status> {
    // A command is no sweep: only the budget of a minute limits it.
    let budget = args.limits.budget(u32::MAX);
    let policy = args.force.relax(Policy { mode: Mode::Enforce, budget, ..args.judgement.policy() });
    let watch = args.judgement.watch(&policy);
    let mut engine = args.node.engine(policy)?;
    let round = two_looks(&mut engine, watch).await;
    let chosen = chosen(&args, &round)?;
    let standing = standing(&args, &engine, &round);
    let mut hand = Hand { engine, journal: None, args: &args, standing, status: Status::Success };
    if chosen.refused {
        hand.status = Status::Refused;
    }
    hand.reap(chosen.containers).await?;
    hand.reap(chosen.bundles).await?;
    hand.reap(chosen.units).await?;
    Ok(hand.status)
}

/// What bears on permission: the brakes that the daemon has too.
fn standing(args: &Args, engine: &Engine, round: &Round) -> Standing {
    let containers = round.judged.iter().filter(|judged| judged.proof().is_some()).count();
    let bundles = round.bundles.iter().filter(|judged| judged.proof().is_some()).count();
    let census = round.census(containers.saturating_add(bundles));
    let Braking { paused, storm, .. } =
        Braking::by_hand(&args.node.state_dir, &engine.policy().budget, &census);
    let storm = storm.filter(|_| !args.force.lifts(Liftable::Storm));
    Standing { paused, storm, ..Standing::default() }
}

/// The proofs of what was named.
#[derive(Debug, Default)]
struct Chosen {
    containers: Vec<LeakProof>,
    bundles: Vec<LeakProof<BundleSighting>>,
    units: Vec<LeakProof<UnitSighting>>,
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
            Found::Unit(judged) => {
                chosen.refused |= refuse(args, &judged.id, &judged.verdict)?;
                chosen.units.extend(proof(args, judged));
            }
            Found::Misplaced(judged) => chosen.refused |= refuse(args, &judged.id, &judged.verdict)?,
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
                print(&refused_line(id, veto))?;
            }
        }
    }
    Ok(true)
}

fn refused_line(id: &LeakId, veto: &Veto) -> String {
    format!("{id}: refused, {}: {}\n", veto.guard, veto.detail)
}

/// Reaps what was chosen, one sort after the other.
#[derive(Debug)]
struct Hand<'a> {
    engine: Engine,
    journal: Option<Journal>,
    args: &'a Args,
    standing: Standing,
    status: Status,
}

// === impl Hand ===

impl Hand<'_> {
    async fn reap<S: Seek + Reap>(&mut self, proofs: Vec<LeakProof<S>>) -> anyhow::Result<()> {
        let sweep = permit(proofs, self.engine.policy(), &self.standing);
        for Refusal { plan, veto } in &sweep.refused {
            print(&refused_line(plan.id(), veto))?;
            self.status = worse(self.status, Status::Refused);
        }
        for plan in sweep.permitted {
            let status = if self.args.dry_run {
                rehearse_one(&mut self.engine, plan).await?
            } else {
                self.standing.recent_reaps = self.standing.recent_reaps.saturating_add(1);
                self.reap_one(plan).await?
            };
            self.status = worse(self.status, status);
        }
        Ok(())
    }

    async fn reap_one<S: Seek + Reap>(&mut self, plan: ReapPlan<S>) -> anyhow::Result<Status> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => open_journal(&self.args.audit.audit_log, &self.engine)?,
        };
        let journal = self.journal.insert(journal);
        let orders = Orders { state_dir: &self.args.node.state_dir, forced: self.args.force.forced() };
        reap_one(&mut self.engine, journal, plan, orders).await
    }
}

/// Everything up to the last call, which is left out.
async fn rehearse_one<S: Seek + Reap>(engine: &mut Engine, plan: ReapPlan<S>) -> anyhow::Result<Status> {
    let (id, what) = (plan.id().clone(), what_of(&plan));
    match rehearse(engine, plan, &Freshness::Fresh).await {
        Ok(Rehearsal { steps, members }) => {
            let members: Vec<String> = members.iter().map(ToString::to_string).collect();
            let members = if members.is_empty() { "none".to_owned() } else { members.join(" ") };
            print(&format!("{id}: would {what}, processes {members}\n"))?;
            let failures = steps.iter().filter_map(|step| Some((step, step.error.as_ref()?)));
            let mut status = Status::Success;
            for (StepReport { op, object, .. }, error) in failures {
                print(&format!("{id}: but would not {op} {object}: {error}\n"))?;
                status = Status::Refused;
            }
            Ok(status)
        }
        Err(veto) => {
            print(&refused_line(&id, &veto))?;
            Ok(Status::Refused)
        }
    }
}

fn what_of<S: Subject>(plan: &ReapPlan<S>) -> String {
    let steps: Vec<&str> = plan.steps().iter().map(Step::op).collect();
    let sighting = plan.proof().sighting();
    format!("{} {} ({})", steps.join(", "), sighting.place(), sighting.container())
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

/// What a person ordered, as far as each act needs it.
#[derive(Debug)]
pub(super) struct Orders<'a> {
    /// Locks and holds.
    pub(super) state_dir: &'a Path,
    /// For the record.
    pub(super) forced: Option<Forced>,
}

/// One act, alone, unless a pause began meanwhile.
pub(super) async fn reap_one<S: Seek + Reap>(
    engine: &mut Engine,
    journal: &mut Journal,
    plan: ReapPlan<S>,
    orders: Orders<'_>,
) -> anyhow::Result<Status> {
    let id = plan.id().clone();
    let Orders { state_dir, forced } = orders;
    let alone = match wait_for_others(state_dir).await {
        Ok(alone) => alone,
        Err(veto) => {
            print(&refused_line(&id, &veto))?;
            return Ok(Status::Refused);
        }
    };
    if let Some(detail) = Braking::paused_by_hand(state_dir) {
        print(&refused_line(&id, &Veto { guard: Guard::Paused, detail, ready_at: None }))?;
        return Ok(Status::Refused);
    }
    let trigger = Trigger::operator(who::person(), plan.proof().cause(), forced);
    match carry_out(engine, journal, plan, trigger, &Freshness::Fresh, &alone).await {
        Acted::Done { report, outcome, unrecorded } => {
            print(&format!("{id}: {} in {:.1?}\n", report.summary(), report.took))?;
            stop_if_harmful(state_dir, &report)?;
            if let Some(Unrecorded { error, .. }) = unrecorded {
                return Err(error).context("the act was carried out, its outcome could not be recorded");
            }
            Ok(if outcome == Outcome::Reaped { Status::Success } else { Status::ReapFailed })
        }
        Acted::Stopped(veto) => {
            print(&refused_line(&id, &veto))?;
            Ok(Status::Refused)
        }
        Acted::Unrecordable(error) => Err(error).context("nothing was done: it could not be recorded"),
    }
}

/// What must never happen stops the daemon too, until a person has looked.
fn stop_if_harmful(state_dir: &Path, report: &Report) -> anyhow::Result<()> {
    let Some(bystander) = report.bystanders.first() else { return Ok(()) };
    let reason = format!("process {bystander} was killed and was not judged");
    Holds::new(state_dir).begin(HoldKind::Bystander, &Hold::own(reason.clone(), clock::wall()))?;
    anyhow::bail!("{reason}; nothing is reaped until `cgroup-reaper resume`")
}

pub(super) fn worse(one: Status, other: Status) -> Status {
    if other.code() > one.code() { other } else { one }
}
