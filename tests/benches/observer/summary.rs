//! All figures at the end, beside what they should be.

use serde::Serialize;

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The target, where there is one.
    at_most: Option<f64>,
    met: Option<bool>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    figures: Vec<Figure>,
}

// === impl Summary ===

impl Summary {
    /// Adds a figure that is only told.
    pub(crate) fn tell(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit, at_most: None, met: None });
    }

    /// Adds a figure with a target. What could not be measured (not a number) has not met it.
    pub(crate) fn judge(&mut self, name: impl Into<String>, value: f64, unit: &'static str, at_most: f64) {
        let (name, met) = (name.into(), value <= at_most);
        self.figures.push(Figure { name, value, unit, at_most: Some(at_most), met: Some(met) });
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("\n{:<64} {:>12} {:>12}\n", "SUMMARY", "MEASURED", "AT MOST");
        for Figure { name, value, unit, at_most, met } in &self.figures {
            let target = at_most.map_or_else(|| "-".to_owned(), |target| format!("{target} {unit}"));
            let verdict = match met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            text.push_str(&format!(
                "{name:<64} {:>12} {target:>12}  {verdict}\n",
                format!("{value:.1} {unit}")
            ));
        }
        text
    }

    /// For programs: one line.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}
