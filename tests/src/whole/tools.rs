//! systemctl and the product, as programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::command::{Finished, run};

/// Software emulation is slow, and two containerds of old need 100 s to start with a leak.
const LIMIT: Duration = Duration::from_mins(3);

/// What `systemctl show` says of a unit.
#[derive(Clone, Debug)]
pub(super) struct Unit(BTreeMap<String, String>);

// === impl Unit ===

impl Unit {
    pub(super) fn of(name: &str) -> Result<Self> {
        let wanted = "LoadState,ActiveState,SubState,Result,ControlGroup,StatusText,MainPID";
        let said = systemctl(&["show", "-p", wanted, "--", name])?;
        let fields = said.lines().filter_map(|line| line.split_once('='));
        Ok(Self(fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }

    pub(super) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(super) fn is_active(&self) -> bool {
        self.get("ActiveState") == "active"
    }

    pub(super) fn is_failed(&self) -> bool {
        self.get("ActiveState") == "failed"
    }

    /// Not loaded, so not listed in any state.
    pub(super) fn is_gone(&self) -> bool {
        self.get("LoadState") == "not-found"
    }
}

/// Runs a program that must succeed.
pub(super) fn must(program: &str, args: &[&str]) -> Result<String> {
    let said = run(Command::new(program).args(args), LIMIT)?;
    said.expect_success(&format!("{program} {}", args.join(" ")))
}

pub(super) fn systemctl(args: &[&str]) -> Result<String> {
    must("systemctl", args)
}

/// Restarts a unit; how long it took.
pub(super) fn restart(unit: &str) -> Result<Duration> {
    let began = Instant::now();
    systemctl(&["restart", unit])?;
    Ok(began.elapsed())
}

/// The product with a grace of one second.
#[derive(Debug)]
pub(super) struct Product {
    audit_log: PathBuf,
}

// === impl Product ===

impl Product {
    pub(super) fn new(dir: &Path) -> Self {
        Self { audit_log: dir.join("audit.jsonl") }
    }

    pub(super) fn run(args: &[&str]) -> Result<Finished> {
        run(Command::new("/lab/cgroup-reaper").args(args), LIMIT)
    }

    /// `run --once --mode enforce`; the exit code must be this.
    pub(super) fn enforce(&self, code: i32) -> Result<()> {
        let log = self.audit_log.to_str().context("a plain path")?;
        let done = Self::run(&["run", "--once", "--mode", "enforce", "--grace", "1s", "--audit-log", log])?;
        ensure!(done.code == Some(code), "run --once ended with {:?}: {}", done.code, done.stderr.trim());
        Ok(())
    }

    /// The items of `scan -o json`.
    pub(super) fn scan() -> Result<Vec<Value>> {
        let done = Self::run(&["scan", "-o", "json", "--grace", "1s"])?;
        let list: Value = serde_json::from_str(&done.stdout)
            .with_context(|| format!("scan ended with {:?}: {}", done.code, done.stderr.trim()))?;
        Ok(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    /// The item of one container.
    pub(super) fn item(id: &str) -> Result<Option<Value>> {
        Ok(Self::scan()?.into_iter().find(|item| text(item, "/target/containerId") == id))
    }

    /// The item of one container, which must be a confirmed leak of this kind.
    pub(super) fn confirmed(id: &str, kind: &str) -> Result<Value> {
        let item = Self::item(id)?.with_context(|| format!("scan does not show {id}"))?;
        let is = (text(&item, "/kind"), text(&item, "/state"));
        ensure!(is == (kind, "confirmed"), "{id} should be {kind}, confirmed: {item:#}");
        Ok(item)
    }
}

/// A text of a JSON value; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
