//! The table of results: on the terminal, and in docs/kernels.md between two marks.

use std::fs;

use anyhow::Context as _;

use super::trial::{Outcome, Record};
use crate::cargo::workspace;

const BEGIN: &str = "<!-- lab test: begin -->\n";
const END: &str = "<!-- lab test: end -->\n";
const VERSIONS: [&str; 4] = ["kernel", "systemd", "containerd", "runc"];

#[expect(clippy::print_stdout, reason = "a command speaks to the terminal")]
pub(super) fn show(records: &[Record]) {
    println!("\n{}", table(records));
    let outcomes = || records.iter().flat_map(|record| &record.outcomes);
    let failed = outcomes().filter(|outcome| !outcome.ok).count();
    let broken = records.iter().filter(|record| record.broken.is_some()).count();
    let passed = outcomes().count().saturating_sub(failed);
    println!("{passed} passed, {failed} failed, {broken} nodes broken");
}

/// Puts the table into the page.
pub(super) fn write(records: &[Record]) -> anyhow::Result<()> {
    let path = workspace().join("docs/kernels.md");
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = with_table(&page, &table(records))?;
    put(&path, &text)
}

#[expect(clippy::disallowed_methods, reason = "a page of the documentation")]
fn put(path: &std::path::Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn with_table(page: &str, table: &str) -> anyhow::Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("docs/kernels.md has no begin mark")?;
    let (_, after) = rest.split_once(END).context("docs/kernels.md has no end mark")?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// One column a node, one row a version or scenario.
fn table(records: &[Record]) -> String {
    let names: Vec<&str> = records.iter().map(|record| record.node.as_str()).collect();
    let rule = vec!["---"; records.len().saturating_add(1)];
    let mut rows = vec![row("", &names), format!("|{}|\n", rule.join("|"))];
    let cgroups: Vec<&str> = records.iter().map(|record| record.cgroups.as_str()).collect();
    rows.push(row("cgroups", &cgroups));
    for version in VERSIONS {
        let of = |record: &Record| record.versions.get(version).cloned().unwrap_or_else(|| "?".to_owned());
        rows.push(row(version, &records.iter().map(of).collect::<Vec<_>>()));
    }
    let mut scenarios: Vec<&str> = vec![];
    for outcome in records.iter().flat_map(|record| &record.outcomes) {
        if !scenarios.contains(&outcome.name.as_str()) {
            scenarios.push(&outcome.name);
        }
    }
    for scenario in scenarios {
        let of = |record: &Record| record.outcome(scenario).map_or_else(|| "-".to_owned(), cell);
        rows.push(row(&format!("`{scenario}`"), &records.iter().map(of).collect::<Vec<_>>()));
    }
    rows.concat()
}

fn cell(outcome: &Outcome) -> String {
    let said = outcome.said.replace('|', "/").replace('\n', " ");
    if outcome.ok { said } else { format!("**FAILED**: {said}") }
}

fn row(head: &str, cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {head} | {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_scenario_is_a_row_and_a_failure_is_seen() {
        let outcome = |ok| Outcome { name: "live".to_owned(), ok, said: "a|b".to_owned(), seconds: 1 };
        let record = |name: &str, outcomes| Record {
            node: name.to_owned(),
            cgroups: "v2".to_owned(),
            versions: BTreeMap::from([("kernel".to_owned(), "7.2".to_owned())]),
            outcomes,
            broken: None,
        };
        let all = [record("sid", vec![outcome(true)]), record("trixie", vec![outcome(false)])];
        let table = table(&all);
        assert!(table.contains("| `live` | a/b | **FAILED**: a/b |\n"), "{table}");
        assert!(table.contains("| kernel | 7.2 | 7.2 |\n") && table.contains("| systemd | ? | ? |\n"));
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(with_table(&page, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}b\n"));
        assert!(with_table("a\n", "new").is_err());
    }
}
