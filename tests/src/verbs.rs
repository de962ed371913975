//! The product's one-shot commands, and what they print.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::command::Finished;
use crate::reaper::{Mode, Reaper};

/// Above two looks, a grace and the deadlines of several sources that do not answer.
const LIMIT: Duration = Duration::from_mins(1);
const GRACE: [&str; 2] = ["--grace", "1s"];

/// What `scan -o json` printed.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The exit code with `--exit-code`.
    pub code: Option<i32>,
    /// The whole answer.
    pub list: Value,
}

/// One item of a scan.
#[derive(Clone, Debug)]
pub struct Item(Value);

// === impl Scan ===

impl Scan {
    /// All items.
    pub fn items(&self) -> Vec<Item> {
        self.list.get("items").and_then(Value::as_array).into_iter().flatten().cloned().map(Item).collect()
    }

    /// The item of a container, if it has the shape of a leak.
    pub fn of(&self, container: &str) -> Option<Item> {
        self.items().into_iter().find(|item| item.text("/target/containerId") == container)
    }

    /// Containers whose leak is confirmed, in order.
    pub fn confirmed(&self) -> Vec<String> {
        let confirmed = self.items().into_iter().filter(|item| item.text("/state") == "confirmed");
        let mut ids: Vec<String> = confirmed.map(|item| item.text("/target/containerId")).collect();
        ids.sort();
        ids
    }
}

// === impl Item ===

impl Item {
    /// A field as text without quotes; empty if there is none.
    pub fn text(&self, pointer: &str) -> String {
        match self.0.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    /// A field.
    pub fn field(&self, pointer: &str) -> Option<&Value> {
        self.0.pointer(pointer)
    }

    /// Names of the guards that hold.
    pub fn held_by(&self) -> Vec<String> {
        let guards = self.0.get("guards").and_then(Value::as_array).into_iter().flatten();
        let name = |guard: &Value| guard.get("name")?.as_str().map(str::to_owned);
        guards
            .filter(|guard| guard.get("verdict").and_then(Value::as_str) == Some("hold"))
            .filter_map(name)
            .collect()
    }
}

// === impl Reaper ===

impl Reaper {
    /// `scan -o json --exit-code`, with a grace of one second.
    pub fn scan(&self) -> Result<Scan> {
        let [flag, grace] = GRACE;
        let (code, list) = self.json(&["scan", "-o", "json", "--exit-code", flag, grace], LIMIT)?;
        ensure!(list.get("kind").and_then(Value::as_str) == Some("LeakList"), "not a list: {list}");
        Ok(Scan { code, list })
    }

    /// `run --once`, with a grace of one second.
    pub fn once(&self, mode: Mode) -> Result<Finished> {
        let audit = self.audit_log();
        let audit = audit.to_str().context("directory name is not UTF-8")?;
        let [flag, grace] = GRACE;
        self.run(&["run", "--once", "--mode", mode.as_str(), flag, grace, "--audit-log", audit], LIMIT)
    }

    /// `reap` with these words, with a grace of one second.
    pub fn reap(&self, words: &[&str]) -> Result<Finished> {
        let audit = self.audit_log();
        let audit = audit.to_str().context("directory name is not UTF-8")?;
        let [flag, grace] = GRACE;
        self.run(&[&["reap", flag, grace, "--audit-log", audit], words].concat(), LIMIT)
    }
}
