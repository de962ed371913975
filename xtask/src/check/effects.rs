//! Where the product acts on the node, writes, or reads the clock.
//!
//! Clippy forbids those calls everywhere, and each lawful one carries an `expect` with a reason. This lists them all
//! and refuses those that are in the wrong place, so that a reviewer reads one page to know what the program can do.

use super::Findings;
use super::source::Source;

const LINT: &str = "disallowed_methods";

/// Paths below `reaper-userspace/src` where effects may be.
const LAWFUL: [&str; 7] =
    ["reap/", "cgroupfs/control", "systemd/", "mounts", "audit", "state", "daemon/clock"];

pub(super) fn check(sources: &[Source]) -> Findings {
    let mut findings = Findings::default();
    for source in sources {
        for (at, _) in source.tested_code().match_indices(LINT) {
            let line = format!("{}: {}", source.place(at), reason(source, at));
            if is_lawful(source) {
                findings.notes.push(line);
            } else {
                findings.breaches.push(format!("{line}; effects belong in {}", LAWFUL.join(", ")));
            }
        }
    }
    findings
}

fn is_lawful(source: &Source) -> bool {
    let inside = source.inside_crate();
    LAWFUL.iter().any(|place| {
        let rest = inside.strip_prefix(place);
        rest.is_some_and(|rest| place.ends_with('/') || rest.starts_with(['/', '.']))
    })
}

fn reason(source: &Source, at: usize) -> String {
    let attribute = source.text.get(at..).and_then(|rest| rest.split_once(']')).map_or("", |(head, _)| head);
    attribute.split('"').nth(1).unwrap_or("no reason given").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECT: &str =
        "x;\n#[expect(\n clippy::disallowed_methods,\n reason = \"removes a leaf\")]\nfn f() {}";

    fn found(path: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let Findings { notes, breaches } =
            check(&[Source::new(format!("reaper-userspace/src/{path}"), text)]);
        (notes, breaches)
    }

    #[test]
    fn lawful_effects_are_listed_with_their_reason() {
        for path in [
            "reap/remove.rs",
            "cgroupfs/control.rs",
            "cgroupfs/control/kill.rs",
            "mounts.rs",
            "daemon/clock.rs",
        ] {
            let place = format!("reaper-userspace/src/{path}:3: removes a leaf");
            assert_eq!(found(path, EXPECT), (vec![place], vec![]));
        }
    }

    #[test]
    fn an_effect_elsewhere_is_a_breach() {
        for path in ["verdict/mod.rs", "cgroupfs/walk.rs", "auditor.rs", "reaping/x.rs", "daemon/mod.rs"] {
            let (notes, breaches) = found(path, EXPECT);
            assert_eq!((notes.len(), breaches.len()), (0, 1), "{path}");
        }
    }

    #[test]
    fn unit_tests_and_comments_have_no_effects() {
        let in_test = format!("#[cfg(test)]\nmod tests {{\n{EXPECT}\n}}");
        assert_eq!(found("verdict/mod.rs", &in_test), (vec![], vec![]));
        assert_eq!(found("verdict/mod.rs", "// clippy::disallowed_methods"), (vec![], vec![]));
    }
}
