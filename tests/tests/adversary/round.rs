//! One round: a leak, an act, trouble in between, a judgement.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use reaper_userspace::audit::Outcome;
use reaper_userspace::daemon::clock;
use reaper_userspace::ident::{CgroupPath, Lookup};
use reaper_userspace::plan::ReapPlan;
use reaper_userspace::reap::hook::{self, Point};
use reaper_userspace::reap::{Armed, Report, Timing};
use reaper_userspace::verdict::LeakProof;

use crate::by_hand::ByHand;
use crate::random::Random;
use crate::trouble::Trouble;
use crate::world::World;

/// Shorter than the product's, for the rounds in which something cannot end by chance, and by construction.
const BOUND: Duration = Duration::from_millis(250);
const STUCK: Duration = Duration::from_millis(15);

/// What came of a round.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// Kinds of trouble, and where.
    pub(crate) forced: Vec<(&'static str, String)>,
    pub(crate) outcome: String,
    pub(crate) failures: Vec<String>,
}

/// A trouble that waits for its place.
#[derive(Clone, Copy, Debug)]
struct Due {
    trouble: Trouble,
    point: Point,
    /// How often the place is passed before.
    after: usize,
}

/// What the hook needs; the round gives it away while an act is under way.
#[derive(Debug)]
struct Scene {
    world: World,
    random: Random,
    due: Vec<Due>,
    /// Of the act.
    bound: Duration,
    forced: Vec<(&'static str, String)>,
    errors: Vec<String>,
}

type Shared = Arc<Mutex<Scene>>;

/// Plays a round in the world, and gives it back.
pub(crate) fn play(mut world: World, seed: u64, index: u64) -> Result<(World, Played)> {
    let mut random = Random::for_round(seed, index);
    world.set(&mut random).with_context(|| format!("make the leak of round {index}"))?;
    let due: Vec<Due> = (0..random.pick(&[1, 1, 1, 2, 3])).map(|_| draw(&mut random)).collect();
    // What v1 froze from above cannot end.
    let stuck = world.has_v1() && due.iter().any(|due| due.trouble == Trouble::FrozenAbove);
    let bound = if stuck { STUCK } else { BOUND };
    let scene = Scene { world, random, due, bound, forced: vec![], errors: vec![] };
    let shared = Arc::new(Mutex::new(scene));
    let hooked = Arc::clone(&shared);
    hook::install(move |point| lock(&hooked).pass(point));
    let acted = act(&shared);
    hook::uninstall();
    let scene = Arc::try_unwrap(shared).ok().context("an act goes on")?;
    let Scene { mut world, forced, errors, .. } = scene.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (outcome, report) = match acted {
        Ok(report) => (report.outcome().as_str().to_owned(), Some(report)),
        Err(reason) => (reason.split(':').next().unwrap_or_default().to_owned(), None),
    };
    let mut played = Played { forced, outcome, failures: errors };
    let restarted = |(kind, place): &(&str, String)| *kind == Trouble::Restarted.word() && place == "Opened";
    if report.is_some() && played.forced.iter().any(restarted) {
        played.failures.push("acted, and containerd was another one at the second proof".to_owned());
    }
    let reaped = report.as_ref().is_some_and(|report| report.outcome() == Outcome::Reaped);
    let named = report.as_ref().is_none_or(|report| !report.reasons().is_empty());
    world.judge(reaped, named, &mut played.failures);
    if let Some(stranger) = report.as_ref().and_then(|report| report.bystanders.first()) {
        played.failures.push(format!("{stranger} was killed and not judged"));
    }
    if !played.failures.is_empty() {
        played.failures.push(format!("{} {:?} {report:#?}", world.stage().name, played.forced));
    }
    world.clear().with_context(|| format!("clear round {index}: {played:?}"))?;
    Ok((world, played))
}

fn draw(random: &mut Random) -> Due {
    Due {
        trouble: random.pick(&Trouble::ALL),
        point: random.pick(&Point::ALL),
        after: random.pick(&[0, 0, 0, 1, 2]),
    }
}

fn lock(scene: &Mutex<Scene>) -> MutexGuard<'_, Scene> {
    scene.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The act as the daemon carries it out; why it was refused, if it was.
fn act(shared: &Shared) -> Result<Report, String> {
    let layout = Arc::clone(&lock(shared).world.stage().layout);
    let planned = prove(&lock(shared).world)?;
    let armed =
        Armed::open(ReapPlan::new(planned), layout).map_err(|refused| format!("refused: {refused}"))?;
    let fresh = prove(&lock(shared).world)?;
    let mut scene = lock(shared);
    let intent = scene.world.records.intent(&fresh).map_err(|error| format!("no intent: {error:#}"))?;
    let timing = Timing { now: clock::boot, deadline: clock::boot().after(scene.bound) };
    drop(scene);
    armed.fire(&fresh, &intent, timing).map_err(|refused| format!("refused: {refused}"))
}

/// The product's own verdict on what is there.
pub(crate) fn prove(world: &World) -> Result<LeakProof, String> {
    let path = world.told.clone().unwrap_or_else(|| world.path());
    let cgroup = CgroupPath::try_from(path).map_err(|error| format!("no path: {error}"))?;
    let mounts = match world.mounts() {
        Lookup::Found(mounts) => mounts,
        Lookup::NotFound => vec![],
        Lookup::Unavailable(reason) => return Err(format!("held by source_unavailable: {reason}")),
    };
    ByHand { layout: &world.stage().layout, cgroup, mounts, server: world.server }.prove()
}

// === impl Scene ===

impl Scene {
    fn pass(&mut self, point: Point) {
        self.world.signalled |= point == Point::Signal;
        let mut due = vec![];
        self.due.retain_mut(|one| {
            let now = one.point == point && one.after == 0;
            if one.point == point && !now {
                one.after -= 1;
            }
            if now {
                due.push(*one);
            }
            !now
        });
        for Due { trouble, point, .. } in due {
            match trouble.make(&mut self.world, &mut self.random, point) {
                Ok(true) => self.forced.push((trouble.word(), format!("{point:?}"))),
                Ok(false) => {}
                Err(error) => self.errors.push(format!("{}: {error:#}", trouble.word())),
            }
        }
    }
}
