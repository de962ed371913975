//! Which container a person means.

use crate::daemon::engine::{Judged, Round};
use crate::fact::{BundleSighting, MisplacedSighting, Subject, UnitSighting};
use crate::ident::{ContainerKey, LeakId};

/// Least characters of a container id that name it.
const SHORTEST: usize = 4;

/// What a person means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    /// A container's cgroup.
    Container(&'a Judged),
    /// A bundle.
    Bundle(&'a Judged<BundleSighting>),
    /// A failed scope.
    Unit(&'a Judged<UnitSighting>),
    /// A live container outside of its cgroup.
    Misplaced(&'a Judged<MisplacedSighting>),
}

// === impl Found ===

impl<'a> Found<'a> {
    /// Everything of a round.
    pub(super) fn all(round: &'a Round) -> impl Iterator<Item = Self> {
        let leaks = round.judged.iter().map(Self::Container).chain(round.bundles.iter().map(Self::Bundle));
        leaks.chain(round.units.iter().map(Self::Unit)).chain(round.misplaced.iter().map(Self::Misplaced))
    }

    const fn id(self) -> &'a LeakId {
        match self {
            Self::Container(judged) => &judged.id,
            Self::Bundle(judged) => &judged.id,
            Self::Unit(judged) => &judged.id,
            Self::Misplaced(judged) => &judged.id,
        }
    }

    fn container(self) -> &'a ContainerKey {
        match self {
            Self::Container(judged) => judged.sighting.container(),
            Self::Bundle(judged) => judged.sighting.container(),
            Self::Unit(judged) => judged.sighting.container(),
            Self::Misplaced(judged) => judged.sighting.container(),
        }
    }

    fn is_meant(self, word: &str) -> bool {
        match self {
            Self::Container(judged) => means(judged, word),
            Self::Bundle(judged) => means(judged, word),
            Self::Unit(judged) => means(judged, word),
            Self::Misplaced(judged) => means(judged, word),
        }
    }
}

/// True if `word` is a short name, a container id or its beginning, `namespace/id`, a path, or a member's process number.
fn means<S: Subject>(judged: &Judged<S>, word: &str) -> bool {
    let pid = word.parse::<u32>().ok();
    judged.id.as_str() == word
        || names(judged.sighting.container(), word)
        || judged.sighting.place() == word
        || pid.is_some_and(|pid| judged.sighting.members().any(|member| member.tgid.get() == pid))
}

/// True if `word` names the container by its id, its beginning, or with its namespace.
pub(super) fn names(container: &ContainerKey, word: &str) -> bool {
    let id = container.id.as_str();
    id == word || container.to_string() == word || (word.len() >= SHORTEST && id.starts_with(word))
}

/// The one that is meant.
///
/// # Errors
/// None, or several, with their names.
pub(super) fn judged<'a>(round: &'a Round, word: &str) -> anyhow::Result<Found<'a>> {
    let found: Vec<Found<'_>> = Found::all(round).filter(|found| found.is_meant(word)).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => match round.look.live.iter().find(|live| names(&live.container, word)) {
            Some(live) => anyhow::bail!("{} is in use: {} lists its task", live.container, live.address),
            None => anyhow::bail!(
                "nothing here is named {word:?}: give an id of `cgroup-reaper scan`, a container id or its first \
                 {SHORTEST} characters, namespace/id, a path or a process number"
            ),
        },
        several => {
            let names: Vec<String> =
                several.iter().map(|found| format!("{} ({})", found.id(), found.container())).collect();
            anyhow::bail!("{word:?} may mean {}; say which", names.join(" or "))
        }
    }
}
