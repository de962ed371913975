//! One thing that was checked, and how checks are shown.

use serde::Serialize;

use crate::cli::Status;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// Something is slower, unknown or left out.
    Warning,
    /// Nothing works on this node.
    Problem,
}

/// What was looked at, what was seen, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    name: &'static str,
    state: State,
    seen: String,
    remedy: Option<String>,
}

/// All of them, as `doctor -o json` prints them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Doctor<'a> {
    api_version: &'static str,
    kind: &'static str,
    checks: &'a [Check],
}

// === impl State ===

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

// === impl Check ===

impl Check {
    pub(super) fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self { name, state: State::Ok, seen: seen.into(), remedy: None }
    }

    pub(super) fn warning(name: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Warning, seen: seen.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn problem(name: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Problem, seen: seen.into(), remedy: Some(remedy.into()) }
    }

    #[cfg(test)]
    pub(super) const fn state(&self) -> State {
        self.state
    }

    #[cfg(test)]
    pub(super) fn seen(&self) -> &str {
        &self.seen
    }
}

// === impl Doctor ===

impl<'a> Doctor<'a> {
    pub(super) const fn new(checks: &'a [Check]) -> Self {
        Self { api_version: "reaper/v1", kind: "Doctor", checks }
    }

    /// For people: the remedy stands below what it is for.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Check { name, state, seen, remedy } in self.checks {
            text.push_str(&format!("{:<8} {name:<14} {seen}\n", state.as_str()));
            if let Some(remedy) = remedy {
                text.push_str(&format!("{:<23} -> {remedy}\n", ""));
            }
        }
        let count = |state| self.checks.iter().filter(|check| check.state == state).count();
        let end = match (count(State::Problem), count(State::Warning)) {
            (0, 0) => "All is well.\n".to_owned(),
            (0, warnings) => format!("It works here; warnings: {warnings}.\n"),
            (problems, _) => format!("It cannot work here; problems: {problems}.\n"),
        };
        text + &end
    }

    /// A warning is no reason to fail.
    pub(super) fn status(&self) -> Status {
        let worst = self.checks.iter().map(|check| check.state).max();
        if worst == Some(State::Problem) { Status::Unsupported } else { Status::Success }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_problem_makes_the_node_unsupported() {
        let mut checks = vec![Check::ok("a", "fine"), Check::warning("b", "slow", "wait")];
        assert_eq!(Doctor::new(&checks).status(), Status::Success);
        assert!(Doctor::new(&checks).text().ends_with("It works here; warnings: 1.\n"));
        checks.push(Check::problem("c", "broken", "repair it"));
        assert_eq!(Doctor::new(&checks).status(), Status::Unsupported);
        let text = Doctor::new(&checks).text();
        assert!(
            text.contains("problem  c              broken\n                        -> repair it\n"),
            "{text}"
        );
    }
}
