//! What is known of a prepared trace, for people and for machines.
//!
//! The JSON names are a contract with the scripts that read them; a test of `tests/replay.rs` holds them fixed.

use serde_json::{Value, json};

use super::classify::Classes;
use super::model::Rules;
use super::plan::Plan;
use super::reader::Skipped;

/// What a trace is like, and what was made of it.
#[derive(Clone, Debug)]
pub struct TraceFigures {
    /// The names of its files.
    pub name: String,
    /// How much of it is used, and how.
    pub plan: Plan,
    /// How requests were understood.
    pub rules: Rules,
    /// Lines that were left out.
    pub skipped: Skipped,
    /// Records of the load.
    pub load_records: u64,
    /// Their keys and values, bytes.
    pub load_bytes: u64,
    /// Their keys alone, bytes.
    pub load_key_bytes: u64,
    /// Operations of the run.
    pub run_ops: u64,
    /// What these operations are.
    pub classes: Classes,
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

impl TraceFigures {
    /// Mean bytes of a key and of a value of the load.
    #[must_use]
    pub fn mean_sizes(&self) -> (usize, usize) {
        let mean = |bytes: u64| usize::try_from(bytes / self.load_records.max(1)).unwrap_or(usize::MAX);
        (mean(self.load_key_bytes), mean(self.load_bytes - self.load_key_bytes))
    }

    /// For people: name and text of each line.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        let Self { plan, classes, .. } = self;
        let mut lines = vec![
            (
                "trace".to_string(),
                format!(
                    "{}: {} requests for {} keys, each {} time(s), {}",
                    self.name,
                    plan.requests,
                    plan.keys,
                    plan.copies,
                    self.rules.semantics.name()
                ),
            ),
            (
                "data".to_string(),
                format!(
                    "{:.1} MB at the end; loaded {} records, {:.1} MB",
                    plan.data_bytes as f64 / 1e6,
                    self.load_records,
                    self.load_bytes as f64 / 1e6
                ),
            ),
            (
                "category".to_string(),
                format!(
                    "{}: {} of the operations read",
                    classes.category().name(),
                    percent(classes.read_share())
                ),
            ),
            (
                "reads".to_string(),
                format!(
                    "{} of sunk records, {} of hot ones, {} of both; {} of all find nothing",
                    percent(classes.sunk_share()),
                    percent(classes.hot_share()),
                    percent(classes.sunk_and_hot_share()),
                    percent(classes.empty_reads as f64 / classes.reads.max(1) as f64)
                ),
            ),
        ];
        if let Some(first) = &self.skipped.first {
            let text = format!("{} malformed line(s) left out; the first: {first}", self.skipped.count);
            lines.push(("left out".to_string(), text));
        }
        lines
    }

    /// For machines.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self { plan, .. } = self;
        let mut json = self.classes.to_json();
        json["name"] = json!(self.name);
        json["semantics"] = json!(self.rules.semantics.name());
        json["expire"] = json!(self.rules.expire);
        json["requests"] = json!(plan.requests);
        json["run_from_request"] = json!(plan.run_from);
        json["keys"] = json!(plan.keys);
        json["copies"] = json!(plan.copies);
        json["data_bytes"] = json!(plan.data_bytes);
        json["load_records"] = json!(self.load_records);
        json["load_bytes"] = json!(self.load_bytes);
        json["run_ops"] = json!(self.run_ops);
        json["malformed_lines_left_out"] = json!(self.skipped.count);
        json
    }
}
