//! Opens the audit log for whoever acts.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use super::clock;
use crate::audit::{AuditError, Journal, Node, OpenIntent};

/// Opens or creates the log, and its directory with mode 0750 where that is missing; returns the acts in it that have
/// no outcome.
pub fn open(path: &Path, node: Node) -> Result<(Journal, Vec<OpenIntent>), AuditError> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory);
        made.map_err(|source| AuditError::Open { path: directory.to_owned(), source })?;
    }
    Journal::open(path, node, clock::stamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node { boot: "b1".to_owned(), name: "n1".to_owned() }
    }

    #[test]
    fn a_missing_directory_is_made_and_a_file_in_its_place_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, left) = open(&dir.path().join("log/audit.jsonl"), node()).unwrap();
        assert_eq!((journal.sequence(), left.len()), (1, 0));
        let below_a_file = dir.path().join("log/audit.jsonl/x.jsonl");
        assert!(matches!(open(&below_a_file, node()), Err(AuditError::Open { .. })));
    }
}
