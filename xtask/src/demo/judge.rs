//! What the product says, held against what the demo made.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use reaper_tests::{Leak, Reaper, Watch, read_audit};
use serde_json::Value;

use super::stage::Stage;
use super::summary::Summary;

const COMMAND: Duration = Duration::from_secs(30);
const GRACE: [&str; 2] = ["--grace", "1s"];
const SHOWN: usize = 30;

/// Runs the product's commands and reads its audit log.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) reaper: Reaper,
    audit: Vec<Value>,
}

// === impl Judge ===

impl Judge {
    pub(super) const fn new(reaper: Reaper) -> Self {
        Self { reaper, audit: Vec::new() }
    }

    /// The product's ids of the leaks it has confirmed; an error if it confirms anything that is none.
    pub(super) fn confirmed(&self, stage: &Stage) -> Result<Vec<String>> {
        let [flag, grace] = GRACE;
        let (_, list) = self.reaper.json(&["scan", "-o", "json", flag, grace], COMMAND)?;
        let items = list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut confirmed = Vec::new();
        for item in items.iter().filter(|item| text(item, "/state") == "confirmed") {
            let (container, kind) = (text(item, "/target/containerId"), text(item, "/kind"));
            match stage.leaks.iter().find(|leak| leak.id == container) {
                Some(leak) if leak.kind.as_str() == kind => confirmed.push(text(item, "/id")),
                Some(leak) => bail!("{container} is {}, and scan says {kind}", leak.kind.as_str()),
                None => bail!("scan confirms {kind} {container}, which is no leak of the demo"),
            }
        }
        Ok(confirmed)
    }

    /// What `scan` shows to a person.
    pub(super) fn scan_table(&self) -> Result<String> {
        let [flag, grace] = GRACE;
        Ok(self.reaper.run(&["scan", flag, grace], COMMAND)?.stdout)
    }

    /// What `explain` shows to a person, cut to a screen.
    pub(super) fn explain(&self, id: &str) -> Result<String> {
        let [flag, grace] = GRACE;
        let finished = self.reaper.run(&["explain", id, flag, grace], COMMAND)?;
        ensure!(finished.code == Some(0), "explain {id}: {:?} {}", finished.code, finished.stderr.trim());
        let lines: Vec<&str> = finished.stdout.lines().take(SHOWN).collect();
        Ok(lines.join("\n"))
    }

    /// Reads the audit log as far as it is written.
    pub(super) fn read_audit(&mut self) -> Result<()> {
        self.audit = read_audit(&self.reaper.audit_log())?;
        Ok(())
    }

    /// The records of ended reaps.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &Value> {
        self.records("reap.outcome")
    }

    /// Fills in what the audit log tells.
    pub(super) fn fill(&mut self, stage: &Stage, others: &Watch, summary: &mut Summary) -> Result<()> {
        self.read_audit()?;
        let mut reaped = BTreeSet::new();
        for leak in &stage.leaks {
            let detected = self.of(leak, "leak.confirmed").find_map(|record| number(record, "/detection_ms"));
            summary.detection_ms.extend(detected);
            for record in self.of(leak, "reap.outcome").filter(|record| text(record, "/outcome") == "reaped")
            {
                if leak.is_gone()? && reaped.insert(&leak.id) {
                    summary.reap_ms.extend(number(record, "/dur_ms"));
                }
            }
        }
        summary.reaped = reaped.len();
        let wrong =
            self.records("reap.intent").filter(|record| touches_others(record, stage, others)).count();
        summary.bystanders_hit = stage.bystanders_dead()?.saturating_add(wrong);
        Ok(())
    }

    fn records<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.audit.iter().filter(move |record| text(record, "/type") == kind)
    }

    fn of<'a>(&'a self, leak: &'a Leak, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.records(kind).filter(|record| text(record, "/target/container") == leak.id)
    }
}

/// True if an intent is about something else than a leak, or names a process that was there before the demo.
fn touches_others(intent: &Value, stage: &Stage, others: &Watch) -> bool {
    let container = text(intent, "/target/container");
    // A record that does not say whom it is about is no proof of innocence.
    let named = pids(intent).is_none_or(|pids| pids.into_iter().any(|pid| others.has(pid)));
    named || !stage.leaks.iter().any(|leak| leak.id == container)
}

/// The processes that an intent names; `None` if it does not say.
fn pids(intent: &Value) -> Option<Vec<u32>> {
    let processes = intent.pointer("/before/processes")?.as_array()?;
    processes.iter().map(|process| u32::try_from(process.get("pid")?.as_u64()?).ok()).collect()
}

/// A field for people and comparisons: text without quotes, `-` if there is none.
pub(super) fn text(record: &Value, pointer: &str) -> String {
    match record.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    }
}

fn number(record: &Value, pointer: &str) -> Option<f64> {
    record.pointer(pointer)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_intent_names_its_processes_or_counts_as_silent() {
        let intent =
            json!({"before": {"populated": "yes", "processes": [{"pid": 7, "start": 1}, {"pid": 9}]}});
        assert_eq!(pids(&intent), Some(vec![7, 9]));
        assert_eq!(pids(&json!({"before": {"procs": []}})), None);
        assert_eq!(pids(&json!({"before": {"processes": [{"start": 1}]}})), None);
    }
}
