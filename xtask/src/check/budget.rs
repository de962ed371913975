//! How long files may be.

use super::Findings;
use super::source::Source;

pub(super) const CRATES: [&str; 4] = ["reaper-ebpf", "reaper-userspace", "tests", "xtask"];

/// A reader asks why above this.
const QUESTION: usize = 400;
/// Nobody reads it above this.
const STOP: usize = 600;
const MAIN: &str = "reaper-userspace/src/main.rs";
const MAIN_STOP: usize = 40;

pub(super) fn check(sources: &[Source]) -> Findings {
    let mut findings = Findings::default();
    for source in sources {
        let lines = source.text.lines().count();
        let path = source.path.display();
        let stop = if source.path.ends_with(MAIN) { MAIN_STOP } else { STOP };
        if lines > stop {
            findings.breaches.push(format!("{path}:{lines}: {lines} lines, {stop} are allowed"));
        } else if lines > QUESTION {
            findings.notes.push(format!("{path}: {lines} lines, worth a split above {QUESTION}"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_named_and_too_long_ones_fail() {
        let of = |path: &str, lines| Source::new(path, "x\n".repeat(lines));
        let found = check(&[of("a.rs", 400), of("b.rs", 401), of("c.rs", 601), of(MAIN, 40)]);
        assert_eq!((found.notes.len(), found.breaches.len()), (1, 1), "{found:?}");
        assert!(found.breaches[0].starts_with("c.rs"));
        assert_eq!(check(&[of(MAIN, 41)]).breaches.len(), 1);
    }
}
