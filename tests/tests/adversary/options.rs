//! The command line, of the conductor and of the workers it starts.

use anyhow::{Result, bail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Starts the workers and adds up.
    Conductor,
    /// Makes the namespaces.
    Worker(u64),
    /// Plays, as the first process of a PID namespace.
    Inside(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) seed: u64,
    /// Number of the first round.
    pub(crate) first: u64,
    pub(crate) rounds: u64,
    /// Ends earlier after this many seconds.
    pub(crate) seconds: u64,
    pub(crate) workers: u64,
    /// Die at every place instead.
    pub(crate) crash: bool,
}

// === impl Options ===

impl Options {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            role: Role::Conductor,
            seed: 1,
            first: 0,
            rounds: u64::MAX,
            seconds: 10,
            workers: 4 * std::thread::available_parallelism()
                .map_or(1, |count| u64::try_from(count.get()).unwrap()),
            crash: false,
        };
        let mut timed = false;
        let mut words = words;
        while let Some(word) = words.next() {
            // Options of the usual test harness mean nothing here.
            if word == "--nocapture" || word.starts_with("--test-threads") {
                continue;
            }
            if word == "--crash" {
                options.crash = true;
                continue;
            }
            let Some(value) = words.next().and_then(|value| value.parse::<u64>().ok()) else {
                bail!("{word} needs a number");
            };
            match word.as_str() {
                "--seed" => options.seed = value,
                "--first" => options.first = value,
                "--rounds" => options.rounds = value,
                "--seconds" => (options.seconds, timed) = (value, true),
                "--workers" => options.workers = value.max(1),
                "--worker" => options.role = Role::Worker(value),
                "--inside" => options.role = Role::Inside(value),
                _ => bail!("unknown option {word}"),
            }
        }
        if options.rounds != u64::MAX && !timed {
            options.seconds = u64::MAX;
        }
        Ok(options)
    }

    /// What starts a process in another role.
    pub(crate) fn words(&self, role: &Role) -> Vec<String> {
        let (flag, number) = match role {
            Role::Conductor => ("--workers", self.workers),
            Role::Worker(number) => ("--worker", *number),
            Role::Inside(number) => ("--inside", *number),
        };
        [
            ("--seed", self.seed),
            ("--first", self.first),
            ("--rounds", self.rounds),
            ("--seconds", self.seconds),
            ("--workers", self.workers),
            (flag, number),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value.to_string()])
        .chain(self.crash.then(|| "--crash".to_owned()))
        .collect()
    }

    /// What plays one round alone.
    pub(crate) fn replay(&self, round: u64) -> String {
        format!("--seed {} --first {round} --rounds 1 --workers 1", self.seed)
    }
}
