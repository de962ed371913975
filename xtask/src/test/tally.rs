//! Counts tests from the lines that libtest prints.

use std::iter::Sum;

/// Tests of one or more binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// `cargo test` itself failed: a build error, or a test binary that crashed.
    pub(super) broken: bool,
}

// === impl Tally ===

impl Tally {
    /// From `test result: ok. 3 passed; 0 failed; 0 ignored; ..`; zero from any other line.
    pub(super) fn of_line(line: &str) -> Self {
        let Some(counts) = line.strip_prefix("test result: ") else { return Self::default() };
        let count = |label: &str| {
            let words = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect::<Vec<_>>();
            let pair = words.windows(2).find(|pair| pair.last() == Some(&label));
            pair.and_then(|pair| pair.first()?.parse().ok()).unwrap_or(0)
        };
        Self { passed: count("passed"), failed: count("failed"), broken: false }
    }

    /// Tests that ran.
    pub(super) const fn run(self) -> usize {
        self.passed.saturating_add(self.failed)
    }

    /// Why green counts do not mean that all is well.
    pub(super) const fn why_not_whole(self) -> Option<&'static str> {
        match (self.broken, self.run()) {
            (true, _) => Some("cargo test failed"),
            (false, 0) => Some("no test ran"),
            (false, _) => None,
        }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, one| Self {
            passed: sum.passed.saturating_add(one.passed),
            failed: sum.failed.saturating_add(one.failed),
            broken: sum.broken || one.broken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_and_other_lines_are_not() {
        let ok =
            "test result: ok. 24 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; finished in 4.85s";
        let bad =
            "test result: FAILED. 3 passed; 12 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s";
        let lines = ["running 24 tests", ok, "12 passed; 3 failed", bad];
        let sum: Tally = lines.into_iter().map(Tally::of_line).sum();
        assert_eq!(sum, Tally { passed: 27, failed: 12, broken: false });
    }

    #[test]
    fn a_stage_without_a_test_is_not_whole() {
        assert_eq!(Tally::default().why_not_whole(), Some("no test ran"));
        assert_eq!(Tally { passed: 1, ..Tally::default() }.why_not_whole(), None);
        assert!(Tally { passed: 1, broken: true, ..Tally::default() }.why_not_whole().is_some());
    }
}
