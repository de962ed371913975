//! Which module of the userspace crate may use which.
//!
//! The table is the architecture; `use crate::..` and `crate::..` paths are checked against it, in unit tests too.

use super::Findings;
use super::source::Source;

/// Modules that stand on the same ground.
struct Layer {
    modules: &'static [&'static str],
    /// Whole layers below that may be used, by number.
    below: &'static [usize],
    order: Order,
}

/// How modules of one layer stand to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// A module may use those listed before it.
    AsListed,
    /// None may use another.
    Apart,
}

const LAYERS: [Layer; 5] = [
    Layer {
        modules: &["ident", "time", "kernel", "leak", "fact", "event"],
        below: &[],
        order: Order::AsListed,
    },
    Layer {
        modules: &["policy", "inventory", "lineage", "verdict", "plan"],
        below: &[0],
        order: Order::AsListed,
    },
    Layer {
        modules: &[
            "probe", "cgroupfs", "procfs", "runtime", "systemd", "mounts", "audit", "metrics", "admin",
            "state",
        ],
        below: &[0],
        order: Order::Apart,
    },
    Layer { modules: &["survey", "reap"], below: &[0, 1, 2], order: Order::AsListed },
    Layer { modules: &["config", "daemon", "cli"], below: &[0, 1, 2, 3], order: Order::AsListed },
];

/// Roots of crates: they declare modules and are none.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

pub(super) fn check(sources: &[Source]) -> Findings {
    let breaches = sources.iter().flat_map(|source| {
        let module = module_of(source);
        let uses = if ROOTS.contains(&module.as_str()) { vec![] } else { uses(&source.code) };
        let unknown = (!ROOTS.contains(&module.as_str()) && place_of(&module).is_none())
            .then(|| format!("{}: module {module} is not in the layer table", source.place(0)));
        let wrong = uses.into_iter().filter_map(move |(at, used)| {
            let why = why_not(&module, &used)?;
            Some(format!("{}: {module} uses {used}: {why}", source.place(at)))
        });
        unknown.into_iter().chain(wrong)
    });
    Findings { notes: vec![], breaches: breaches.collect() }
}

/// `verdict` for `src/verdict.rs` and for everything below `src/verdict/`; `lib.rs` and `main.rs` as they are.
fn module_of(source: &Source) -> String {
    let inside = source.inside_crate();
    let first = inside.split('/').next().unwrap_or_default();
    if ROOTS.contains(&first) { first.to_owned() } else { first.trim_end_matches(".rs").to_owned() }
}

fn place_of(module: &str) -> Option<(usize, usize)> {
    LAYERS.iter().enumerate().find_map(|(layer, Layer { modules, .. })| {
        modules.iter().position(|name| *name == module).map(|within| (layer, within))
    })
}

fn why_not(module: &str, used: &str) -> Option<String> {
    if module == used {
        return None;
    }
    let (layer, within) = place_of(module)?;
    let Some((used_layer, used_within)) = place_of(used) else {
        return Some(format!("{used} is not in the layer table"));
    };
    let rule = LAYERS.get(layer)?;
    if layer == used_layer {
        return match rule.order {
            Order::AsListed if used_within < within => None,
            Order::AsListed => Some(format!("layer {layer} is ordered {}", rule.modules.join(" < "))),
            Order::Apart => Some(format!("modules of layer {layer} do not use each other")),
        };
    }
    let allowed = rule.below.contains(&used_layer);
    (!allowed).then(|| format!("layer {layer} may not use layer {used_layer}"))
}

/// Every module named behind `crate::`, and where.
fn uses(code: &str) -> Vec<(usize, String)> {
    let mut found = vec![];
    for (at, path) in code.match_indices("crate::") {
        let before = code.get(..at).and_then(|before| before.chars().next_back());
        if before.is_some_and(is_word) {
            continue;
        }
        let start = at.saturating_add(path.len());
        let rest = code.get(start..).unwrap_or_default();
        if let Some(group) = rest.trim_start().strip_prefix('{') {
            let start = start.saturating_add(rest.len().saturating_sub(group.len()));
            found.extend(group_heads(group).map(|(within, name)| (start.saturating_add(within), name)));
        } else {
            found.push((at, rest.trim_start().chars().take_while(|c| is_word(*c)).collect()));
        }
    }
    found
}

/// First names of the items of a group, whose opening brace is gone: `a::b, c::{d, e}}` gives a and c.
fn group_heads(group: &str) -> impl Iterator<Item = (usize, String)> {
    let mut depth = 0_usize;
    let mut expected = true;
    let mut heads = vec![];
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth = depth.saturating_add(1),
            '}' if depth == 0 => break,
            '}' => depth = depth.saturating_sub(1),
            ',' => expected = depth == 0,
            _ if expected && depth == 0 && is_word(c) => {
                let name = group.get(at..).unwrap_or_default().chars().take_while(|c| is_word(*c));
                heads.push((at, name.collect::<String>()));
                expected = false;
            }
            _ => {}
        }
    }
    heads.into_iter().filter(|(_, name)| name != "self")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new(format!("reaper-userspace/src/{path}"), text)]).breaches
    }

    #[test]
    fn a_breach_is_found_with_its_line() {
        let found =
            breaches("verdict/rules.rs", "//! x\n\nuse crate::ident::Lookup;\nuse crate::plan::Step;\n");
        assert_eq!(
            found,
            [
                "reaper-userspace/src/verdict/rules.rs:4: verdict uses plan: layer 1 is ordered policy < inventory < \
                 lineage < verdict < plan"
            ]
        );
    }

    #[test]
    fn a_breach_inside_a_group_is_found_with_its_line() {
        let found = breaches(
            "audit/mod.rs",
            "use crate::{\n    ident::{CgroupId, Lookup},\n    metrics::Metrics,\n};",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("audit/mod.rs:3: audit uses metrics"), "{found:?}");
    }

    #[test]
    fn a_path_without_use_counts_in_tests_too() {
        let found = breaches(
            "fact/mod.rs",
            "#[cfg(test)] mod tests { fn f() { crate::policy::Policy::default(); } }",
        );
        assert!(found[0].contains("layer 0 may not use layer 1"), "{found:?}");
    }

    #[test]
    fn what_the_table_allows_is_no_breach() {
        for (path, text) in [
            ("plan/mod.rs", "use crate::verdict::LeakProof; use crate::{ident, time::BootTime};"),
            ("cgroupfs/walk.rs", "use crate::cgroupfs::Dir; use crate::leak::LeakKind; // crate::plan::Step"),
            ("reap/mod.rs", "use crate::audit::Intent; use crate::survey::look; pub(crate) fn f() {}"),
            ("cli/run.rs", "use crate::daemon::Daemon; use crate::{self as me, fact};"),
            ("lib.rs", "pub mod nowhere;"),
            ("time.rs", "let s = \"crate::cli::main\"; my_crate::x();"),
        ] {
            assert_eq!(breaches(path, text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn a_module_without_a_layer_is_a_breach() {
        assert!(breaches("nowhere.rs", "")[0].contains("nowhere is not in the layer table"));
        assert!(
            breaches("plan.rs", "use crate::nowhere::X;")[0].contains("nowhere is not in the layer table")
        );
    }

    #[test]
    fn each_module_has_one_place() {
        let mut all: Vec<_> = LAYERS.iter().flat_map(|layer| layer.modules).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
