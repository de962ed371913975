//! Which container a person means.

use crate::daemon::engine::{Judged, Round};
use crate::ident::ContainerKey;

/// Least characters of a container id that name it.
const SHORTEST: usize = 4;

/// True if `word` is a short name, a container id or its beginning, `namespace/id`, a cgroup path, or a member's
/// process number.
fn means(judged: &Judged, word: &str) -> bool {
    let pid = word.parse::<u32>().ok();
    judged.id.as_str() == word
        || names(&judged.sighting.container, word)
        || judged.sighting.cgroup.as_path().to_str() == Some(word)
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
pub(super) fn judged<'a>(round: &'a Round, word: &str) -> anyhow::Result<&'a Judged> {
    let found: Vec<&Judged> = round.judged.iter().filter(|judged| means(judged, word)).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => match round.look.live.iter().find(|live| names(&live.container, word)) {
            Some(live) => anyhow::bail!("{} is in use: {} lists its task", live.container, live.address),
            None => anyhow::bail!(
                "nothing here is named {word:?}: give an id of `cgroup-reaper scan`, a container id or its first \
                 {SHORTEST} characters, namespace/id, a cgroup path or a process number"
            ),
        },
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|judged| format!("{} ({})", judged.id, judged.sighting.container))
                .collect();
            anyhow::bail!("{word:?} may mean {}; say which", names.join(" or "))
        }
    }
}
