//! Whether to act at all: pauses, storms, harm done; and that only one acts at a time.
//!
//! A storm that began holds until few leaks are left or a person has looked (`resume`); one that was released covers as
//! many leaks as there were then, and no more. A hold of the program's own that cannot be written down holds all the
//! same, until the daemon ends.

use std::collections::BTreeMap;
use std::path::Path;

use super::clock;
use super::holds::{Hold, Holds};
use crate::kernel::chain;
use crate::leak::HoldKind;
use crate::policy::{Budget, Census, Mode, Weather};
use crate::time::BootTime;

/// What keeps from acting now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Braking {
    /// A person, harm done, or another daemon.
    pub paused: Option<String>,
    /// Too many leaks at once.
    pub storm: Option<String>,
    /// When time alone changes it.
    pub until: Option<BootTime>,
}

/// A hold of the program's own.
#[derive(Clone, Debug)]
struct Own {
    hold: Hold,
    written: bool,
}

/// The daemon's.
#[derive(Debug)]
pub(super) struct Brakes {
    holds: Holds,
    /// Another daemon has the state directory.
    standby: bool,
    /// Acts; who only observes begins and ends nothing.
    acts: bool,
    own: BTreeMap<HoldKind, Own>,
    /// Leaks at the time a person released a storm.
    released: Option<u32>,
    in_force: BTreeMap<HoldKind, Hold>,
}

/// What changed since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) begun: Vec<(HoldKind, Hold)>,
    pub(super) ended: Vec<HoldKind>,
}

// === impl Braking ===

impl Braking {
    /// For one command by hand, which remembers nothing and begins nothing.
    pub fn by_hand(state_dir: &Path, budget: &Budget, census: &Census) -> Self {
        let held = Holds::new(state_dir).in_force(clock::wall()).into_iter().collect();
        let storm = word(&held, HoldKind::Storm).or_else(|| match budget.weather(census, clock::boot()) {
            Weather::Calm => None,
            Weather::Storm(reason) | Weather::Restart { reason, .. } => Some(reason),
        });
        Self { paused: paused(&held), storm, until: None }
    }

    /// Only what a person said, or harm did.
    pub fn paused_by_hand(state_dir: &Path) -> Option<String> {
        paused(&Holds::new(state_dir).in_force(clock::wall()).into_iter().collect())
    }
}

// === impl Brakes ===

impl Brakes {
    pub(super) fn new(state_dir: &Path, mode: Mode, standby: bool) -> Self {
        let (own, in_force, acts) = (BTreeMap::new(), BTreeMap::new(), mode == Mode::Enforce);
        Self { holds: Holds::new(state_dir), standby, acts, own, released: None, in_force }
    }

    /// The other daemon has ended.
    pub(super) const fn take_over(&mut self) {
        self.standby = false;
    }

    /// Looks at everything that may keep from acting.
    pub(super) fn check(&mut self, budget: &Budget, census: &Census) -> Braking {
        let mut held = self.read();
        if self.own_was_lifted(HoldKind::Storm, &held) {
            tracing::warn!(leaks = census.confirmed, "the storm was released by a person");
            self.released = Some(census.confirmed);
        }
        if self.own_was_lifted(HoldKind::Bystander, &held) {
            tracing::warn!("a person has looked at what was killed, acting goes on");
        }
        self.adopt(&held);
        let waiting = self.storm(budget, census, &mut held);
        held.extend(self.own.iter().map(|(kind, own)| (*kind, own.hold.clone())));
        let until = waiting.as_ref().and_then(|(_, until)| *until);
        let storm = word(&held, HoldKind::Storm).or_else(|| waiting.map(|(reason, _)| reason));
        let braking = Braking { paused: paused(&held), storm, until };
        self.in_force = held;
        braking
    }

    /// Whether a pause began meanwhile: acts of one sweep take time.
    pub(super) fn paused_now(&self) -> Option<String> {
        let mut held = self.read();
        held.extend(self.own.iter().map(|(kind, own)| (*kind, own.hold.clone())));
        paused(&held)
    }

    /// What must never happen ends all acting until a person has looked.
    pub(super) fn harm(&mut self, reason: String) {
        self.begin(HoldKind::Bystander, reason);
    }

    /// What holds, as of the last check.
    pub(super) const fn in_force(&self) -> &BTreeMap<HoldKind, Hold> {
        &self.in_force
    }

    /// What changed from one check to the next.
    pub(super) fn changes(&self, before: &BTreeMap<HoldKind, Hold>) -> Changes {
        let changed = |(kind, hold): &(&HoldKind, &Hold)| before.get(kind) != Some(hold);
        let begun = self.in_force.iter().filter(changed).map(|(kind, hold)| (*kind, hold.clone())).collect();
        let ended = before.keys().filter(|kind| !self.in_force.contains_key(kind)).copied().collect();
        Changes { begun, ended }
    }

    fn read(&self) -> BTreeMap<HoldKind, Hold> {
        let mut held: BTreeMap<HoldKind, Hold> = self.holds.in_force(clock::wall()).into_iter().collect();
        if self.standby {
            let reason = "another cgroup-reaper holds the lock, this one only observes".to_owned();
            let since = self.in_force.get(&HoldKind::Standby).map_or_else(clock::wall, |hold| hold.since);
            held.insert(HoldKind::Standby, Hold::own(reason, since));
        }
        held
    }

    /// What an earlier run, or `reap` by hand, began is ours to watch.
    fn adopt(&mut self, held: &BTreeMap<HoldKind, Hold>) {
        for kind in [HoldKind::Storm, HoldKind::Bystander] {
            if let Some(hold) = held.get(&kind) {
                self.own.entry(kind).or_insert_with(|| Own { hold: hold.clone(), written: true });
            }
        }
    }

    fn own_was_lifted(&mut self, kind: HoldKind, held: &BTreeMap<HoldKind, Hold>) -> bool {
        let lifted = self.own.get(&kind).is_some_and(|own| own.written) && !held.contains_key(&kind);
        if lifted {
            self.own.remove(&kind);
        }
        lifted
    }

    /// Begins or ends a storm; says what to wait for, where it is not a storm yet.
    fn storm(
        &mut self,
        budget: &Budget,
        census: &Census,
        held: &mut BTreeMap<HoldKind, Hold>,
    ) -> Option<(String, Option<BootTime>)> {
        let weather = budget.weather(census, clock::boot());
        if self.standby || !self.acts {
            return match weather {
                Weather::Calm => None,
                Weather::Restart { reason, .. } | Weather::Storm(reason) => Some((reason, None)),
            };
        }
        if held.contains_key(&HoldKind::Storm) || self.own.contains_key(&HoldKind::Storm) {
            if budget.is_over(census) {
                self.end_storm();
                held.remove(&HoldKind::Storm);
            }
            return None;
        }
        if weather == Weather::Calm {
            self.released = None;
            return None;
        }
        if self.released.is_some_and(|covered| census.confirmed <= covered) {
            return None;
        }
        match weather {
            Weather::Calm => None,
            Weather::Restart { reason, until } => Some((reason, Some(until))),
            Weather::Storm(reason) => {
                self.begin(HoldKind::Storm, reason);
                None
            }
        }
    }

    fn begin(&mut self, kind: HoldKind, reason: String) {
        let hold = Hold::own(reason, clock::wall());
        tracing::error!(%kind, "nothing is reaped until `cgroup-reaper resume`: {}", hold.reason);
        let written = self
            .holds
            .begin(kind, &hold)
            .inspect_err(|error| tracing::error!(error = %chain(error), "it holds until the daemon ends"))
            .is_ok();
        self.own.insert(kind, Own { hold, written });
    }

    fn end_storm(&mut self) {
        tracing::warn!("the storm is over");
        if let Err(error) = self.holds.end(HoldKind::Storm) {
            tracing::error!(error = %chain(&error), "the storm stays on record");
            return;
        }
        self.own.remove(&HoldKind::Storm);
    }
}

fn paused(held: &BTreeMap<HoldKind, Hold>) -> Option<String> {
    [HoldKind::Standby, HoldKind::Bystander, HoldKind::Pause].iter().find_map(|kind| word(held, *kind))
}

fn word(held: &BTreeMap<HoldKind, Hold>, kind: HoldKind) -> Option<String> {
    held.get(&kind).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(confirmed: u32) -> Census {
        Census { confirmed, containers: 1000, runtime_started: None }
    }

    fn acting(state_dir: &Path) -> Brakes {
        Brakes::new(state_dir, Mode::Enforce, false)
    }

    fn holds_storm(brakes: &mut Brakes, confirmed: u32) -> bool {
        brakes.check(&Budget::default(), &census(confirmed)).storm.is_some()
    }

    #[test]
    fn a_storm_holds_until_few_are_left_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut brakes = acting(dir.path());
        assert!(!holds_storm(&mut brakes, 100));
        assert!(holds_storm(&mut brakes, 101));
        assert!(holds_storm(&mut brakes, 51), "no trickle at the limit");
        let mut restarted = acting(dir.path());
        assert!(holds_storm(&mut restarted, 51));
        assert!(!holds_storm(&mut restarted, 50));
        assert!(!holds_storm(&mut restarted, 100));
    }

    #[test]
    fn a_storm_of_an_earlier_run_is_released_as_well() {
        let dir = tempfile::tempdir().unwrap();
        assert!(holds_storm(&mut acting(dir.path()), 150));
        let mut restarted = acting(dir.path());
        assert!(holds_storm(&mut restarted, 150));
        Holds::new(dir.path()).end_all().unwrap();
        assert!(!holds_storm(&mut restarted, 150));
    }

    #[test]
    fn a_released_storm_covers_what_was_there_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut brakes = acting(dir.path());
        assert!(holds_storm(&mut brakes, 150));
        Holds::new(dir.path()).end_all().unwrap();
        assert!(!holds_storm(&mut brakes, 150));
        assert!(!holds_storm(&mut brakes, 130));
        assert!(holds_storm(&mut brakes, 151));
    }

    #[test]
    fn a_calm_between_ends_the_release() {
        let dir = tempfile::tempdir().unwrap();
        let mut brakes = acting(dir.path());
        assert!(holds_storm(&mut brakes, 150));
        Holds::new(dir.path()).end_all().unwrap();
        assert!(!holds_storm(&mut brakes, 150));
        assert!(!holds_storm(&mut brakes, 3));
        assert!(holds_storm(&mut brakes, 120));
    }

    #[test]
    fn harm_pauses_until_a_person_has_looked_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut brakes = acting(dir.path());
        brakes.harm("process 7 was killed".to_owned());
        assert!(brakes.paused_now().unwrap().contains("process 7"));
        assert!(brakes.check(&Budget::default(), &census(0)).paused.is_some());
        assert!(acting(dir.path()).check(&Budget::default(), &census(0)).paused.is_some());
        Holds::new(dir.path()).end_all().unwrap();
        assert_eq!(brakes.check(&Budget::default(), &census(0)), Braking::default());
    }

    #[test]
    fn what_cannot_be_written_down_holds_all_the_same() {
        let mut brakes = acting(Path::new("/proc/version/state"));
        brakes.harm("process 7 was killed".to_owned());
        assert!(brakes.check(&Budget::default(), &census(0)).paused.is_some());
        assert!(brakes.paused_now().is_some());
    }

    #[test]
    fn an_observer_begins_and_ends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut second = Brakes::new(dir.path(), Mode::Enforce, true);
        assert!(second.check(&Budget::default(), &census(200)).paused.is_some());
        assert_eq!(Holds::new(dir.path()).in_force(clock::wall()), []);
        second.take_over();
        assert_eq!(second.check(&Budget::default(), &census(0)).paused, None);
    }

    #[test]
    fn a_change_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut brakes = acting(dir.path());
        holds_storm(&mut brakes, 101);
        let none = BTreeMap::new();
        let told: Vec<HoldKind> = brakes.changes(&none).begun.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(told, [HoldKind::Storm]);
        let before = brakes.in_force().clone();
        holds_storm(&mut brakes, 101);
        assert_eq!(brakes.changes(&before), Changes::default());
        holds_storm(&mut brakes, 0);
        assert_eq!(brakes.changes(&before).ended, [HoldKind::Storm]);
    }
}
