//! What was played and how it ended.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) rounds: u64,
    /// Troubles that were really made, by kind.
    pub(crate) forced: BTreeMap<String, u64>,
    /// The same, by place.
    pub(crate) places: BTreeMap<String, u64>,
    /// How the acts ended.
    pub(crate) outcomes: BTreeMap<String, u64>,
    pub(crate) failures: Vec<Failure>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) round: u64,
    pub(crate) what: String,
}

// === impl Tally ===

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        for (mine, theirs) in [
            (&mut self.forced, other.forced),
            (&mut self.places, other.places),
            (&mut self.outcomes, other.outcomes),
        ] {
            for (word, count) in theirs {
                *mine.entry(word).or_default() += count;
            }
        }
        self.failures.extend(other.failures);
    }

    pub(crate) fn page(&self, took: Duration) -> String {
        let mut page = String::new();
        for (title, counts) in [("forced", &self.forced), ("at", &self.places), ("ended", &self.outcomes)] {
            for (word, count) in counts {
                writeln!(page, "{title:>8} {word:<16} {count:>9}").unwrap();
            }
        }
        let per_second = u128::from(self.rounds) * 1000 / took.as_millis().max(1);
        writeln!(
            page,
            "{} rounds in {:.1} s ({per_second} a second), {} troubles forced, {} failures",
            self.rounds,
            took.as_secs_f64(),
            self.forced.values().sum::<u64>(),
            self.failures.len()
        )
        .unwrap();
        page
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}: {}", self.round, self.what)
    }
}
