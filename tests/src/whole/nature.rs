//! What the node is, and what the product's doctor makes of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Shown;
use super::machine::Machine;
use super::tools::{Product, must, text};

/// Versions of what matters, by name.
pub(super) fn versions() -> Result<BTreeMap<&'static str, String>> {
    let word = |text: String, at: usize| text.split_whitespace().nth(at).unwrap_or("?").to_owned();
    Ok(BTreeMap::from([
        ("kernel", must("uname", &["-r"])?.trim().to_owned()),
        ("systemd", word(must("systemctl", &["--version"])?, 1)),
        ("containerd", word(must("containerd", &["--version"])?, 2)),
        ("runc", word(must("runc", &["--version"])?, 2)),
    ]))
}

/// The product can work here: no problem, and the probes at their best level.
pub(super) fn doctor(_: &Machine) -> Shown {
    let said = Product::run(&["doctor", "-o", "json"])?;
    let report: Value = serde_json::from_str(&said.stdout).context("doctor -o json")?;
    let checks = report.get("checks").and_then(Value::as_array).context("no checks")?;
    let of = |state: &str| {
        let wanted = checks.iter().filter(|check| text(check, "/state") == state);
        wanted.map(|check| format!("{}: {}", text(check, "/name"), text(check, "/seen"))).collect::<Vec<_>>()
    };
    let problems = of("problem");
    ensure!(problems.is_empty(), "doctor: {}", problems.join("; "));
    let probes = checks.iter().find(|check| text(check, "/name").contains("probe")).context("no probes")?;
    ensure!(text(probes, "/state") == "ok", "probes: {}", text(probes, "/seen"));
    let warnings = of("warning");
    let warned = if warnings.is_empty() { String::new() } else { format!("; {}", warnings.join("; ")) };
    Ok(format!("{}{warned}", text(probes, "/seen")))
}
