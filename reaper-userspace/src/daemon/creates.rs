//! Creates that the probes saw fail, to say why something leaked.
//!
//! One a container, the last one; a later one that succeeds takes it away. Only evidence: nothing is decided by it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::fact::EndedCommand;
use crate::ident::ContainerKey;

/// Kept at most, the newest: far more than leak on one node.
const LIMIT: usize = 512;

/// The last failed create of each container, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Creates(VecDeque<EndedCommand>);

// === impl Creates ===

impl Creates {
    /// Takes note of a command that ended; all but creates are ignored, and those of which nobody knows the container
    /// or the shim: a name in an argument vector can be anybody's.
    pub fn note(&mut self, ended: EndedCommand) {
        let Some(container) = container(&ended) else { return };
        self.0.retain(|known| self::container(known).as_ref() != Some(&container));
        if ended.end.is_success() || ended.shim.is_none() {
            return;
        }
        if self.0.len() >= LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(ended);
    }

    /// How the last create of this container failed.
    pub fn failed(&self, wanted: &ContainerKey) -> Option<&EndedCommand> {
        self.0.iter().find(|known| container(known).as_ref() == Some(wanted))
    }
}

fn container(ended: &EndedCommand) -> Option<ContainerKey> {
    let invocation = ended.invocation.as_ref().filter(|invocation| invocation.verb == "create")?;
    invocation.container()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{Invocation, ProcessEnd, sample};
    use crate::ident::ContainerId;

    #[test]
    fn the_last_create_of_a_container_counts() {
        let mut creates = Creates::default();
        creates.note(sample::ended_create(ProcessEnd::Code(1)));
        creates.note(sample::ended_create(ProcessEnd::Signal(9)));
        let failed = creates.failed(&sample::container()).unwrap();
        assert_eq!((failed.end, creates.0.len()), (ProcessEnd::Signal(9), 1));
        creates.note(sample::ended_create(ProcessEnd::Code(0)));
        assert_eq!(creates.failed(&sample::container()), None);
    }

    #[test]
    fn what_no_shim_started_or_is_no_create_is_not_kept() {
        let mut creates = Creates::default();
        let killed = sample::ended_create(ProcessEnd::Signal(9));
        creates.note(EndedCommand { shim: None, ..killed.clone() });
        let delete = Invocation { verb: "delete".to_owned(), ..killed.invocation.clone().unwrap() };
        creates.note(EndedCommand { invocation: Some(delete), ..killed.clone() });
        creates.note(EndedCommand { invocation: None, ..killed });
        assert_eq!(creates, Creates::default());
    }

    #[test]
    fn the_newest_are_kept() {
        let mut creates = Creates::default();
        let killed = sample::ended_create(ProcessEnd::Signal(9));
        for number in 0..=LIMIT {
            let id = ContainerId::try_from(format!("c{number}")).unwrap();
            let invocation = Invocation { id, ..killed.invocation.clone().unwrap() };
            creates.note(EndedCommand { invocation: Some(invocation), ..killed.clone() });
        }
        let key = |id: &str| ContainerKey { id: ContainerId::try_from(id).unwrap(), ..sample::container() };
        assert_eq!((creates.0.len(), creates.failed(&key("c0"))), (LIMIT, None));
        assert!(creates.failed(&key("c512")).is_some());
    }
}
