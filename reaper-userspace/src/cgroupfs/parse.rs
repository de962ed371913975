//! The texts of cgroup files. Each parser takes the whole file and refuses what kernels do not write.

use crate::ident::Tgid;

/// `cgroup.events`: what it says of the subtree and of the freezer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Events {
    /// Some task is in the subtree.
    pub(super) populated: bool,
    /// The freezer's effective state; `None` before Linux 5.2.
    pub(super) frozen: Option<bool>,
}

/// What is wrong with a list of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListError {
    /// A 0: a process outside the reader's PID namespace.
    Foreign,
    /// Not a list of numbers.
    Malformed,
}

/// `cgroup.procs` and `tasks`: one number a line. v2 does not promise order, and a process that moves while the
/// file is read may be listed twice (`admin-guide/cgroup-v2.rst`).
pub(super) fn list(text: &[u8]) -> Result<Vec<Tgid>, ListError> {
    let mut members = Vec::new();
    for line in std::str::from_utf8(text).or(Err(ListError::Malformed))?.lines() {
        let number: i64 = line.parse().or(Err(ListError::Malformed))?;
        let foreign_or_bad = if number == 0 { ListError::Foreign } else { ListError::Malformed };
        members.push(Tgid::new(number).ok_or(foreign_or_bad)?);
    }
    members.sort_unstable();
    members.dedup();
    Ok(members)
}

/// `cgroup.events`; unknown keys are later kernels' business.
pub(super) fn events(text: &[u8]) -> Option<Events> {
    let text = std::str::from_utf8(text).ok()?;
    let mut populated = None;
    let mut frozen = None;
    for line in text.lines() {
        match line.split_once(' ')? {
            ("populated", value) => populated = Some(flag(value.as_bytes())?),
            ("frozen", value) => frozen = Some(flag(value.as_bytes())?),
            _ => {}
        }
    }
    Some(Events { populated: populated?, frozen })
}

/// A file that holds 0 or 1.
pub(super) fn flag(text: &[u8]) -> Option<bool> {
    match text.trim_ascii() {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_is_ordered_and_without_duplicates() {
        let numbers: Vec<_> = list(b"30\n7\n30\n").unwrap().into_iter().map(Tgid::get).collect();
        assert_eq!(numbers, [7, 30]);
        assert_eq!(list(b"").unwrap(), []);
    }

    #[test]
    fn a_member_outside_the_pid_namespace_spoils_the_list() {
        assert_eq!(list(b"12\n0\n"), Err(ListError::Foreign));
    }

    #[test]
    fn what_is_no_list_is_never_an_empty_one() {
        for bad in [&b"\n"[..], b"-1\n", b"x\n", b"1 2\n", b"\xff\n", b"99999999999\n"] {
            assert_eq!(list(bad), Err(ListError::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn events_need_a_populated_line() {
        assert_eq!(events(b"populated 1\nfrozen 0\n"), Some(Events { populated: true, frozen: Some(false) }));
        assert_eq!(events(b"populated 0\n"), Some(Events { populated: false, frozen: None }));
        for bad in [&b""[..], b"frozen 1\n", b"populated\n", b"populated 2\n", b"populated 0\nfrozen x\n"] {
            assert_eq!(events(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_positive_number_is_kept(numbers in proptest::collection::btree_set(1..=i32::MAX, 0..50)) {
            let lines: Vec<String> = numbers.iter().rev().map(i32::to_string).collect();
            let text = lines.join("\n");
            let read: Vec<_> = list(text.as_bytes()).unwrap().into_iter().map(|t| t.get().cast_signed()).collect();
            prop_assert_eq!(read, numbers.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _read = (list(&bytes), events(&bytes), flag(&bytes));
        }
    }
}
