//! The parts of a report's JSON from which a run is judged.

use crate::harness::{Job, built};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

/// Longest time of a report on one run.
const LIMIT: Duration = Duration::from_secs(60);

/// A report.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ReportFindings {
    /// `slow`, `no_single_cause`, `balanced`, `serial`, `cannot_tell` or `hangs`.
    pub verdict: String,
    /// The most important one first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Why no rank is named.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Messages that take longer with a node.
    pub network: Option<SlowNetwork>,
    /// What the run would gain by equal work before its first step.
    pub gain_of_start_up: Option<Gain>,
}

/// Messages that take longer than others.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct SlowNetwork {
    /// The node, or the two nodes between which they do.
    pub hosts: Vec<String>,
    /// Their time divided by that of the others.
    pub ratio: f64,
    /// Gain of the run without it; `None`, if it is not known whether they take longer.
    pub gain: Option<Gain>,
}

/// One finding.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Finding {
    /// `straggler`, `node`, `serial`, `phase`, `periodic`, `anomaly`, `network` or `hang`.
    pub kind: String,
    /// What is slow.
    #[serde(default)]
    pub subject: Subject,
    /// Where.
    pub label: Option<Label>,
    /// In which steps.
    pub when: Option<SlowSteps>,
    /// What the run would gain without it.
    pub gain: Option<Gain>,
    /// Why the work takes longer.
    pub cause: Option<LongerWorkCause>,
}

/// Why work takes longer.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct LongerWorkCause {
    /// The cause that is named.
    pub kind: Option<String>,
    /// Whether it explains nearly all of the longer work.
    #[serde(default)]
    pub is_certain: bool,
}

/// Ranks and hosts of a finding.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct Subject {
    /// Ranks.
    #[serde(default)]
    pub ranks: Vec<u32>,
    /// Host names.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// A range, a kernel, a call, or what is between two calls.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Label {
    /// `range` and others.
    #[serde(default)]
    pub kind: String,
    /// Its text.
    pub name: Option<String>,
}

/// Steps of a finding.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct SlowSteps {
    /// `steady`, `stretch`, `periodic` or `irregular`.
    #[serde(default)]
    pub pattern: String,
    /// The first, if they are one stretch or every nth.
    pub first_step: Option<u32>,
    /// The last.
    pub last_step: Option<u32>,
}

/// A shorter run, ns.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Gain {
    /// Estimate.
    pub ns: i64,
    /// Lower end of its interval.
    pub low_ns: Option<i64>,
    /// Upper end.
    pub high_ns: Option<i64>,
    /// Half of it.
    #[serde(default)]
    pub error_bound_ns: i64,
    /// Part of the length of the run.
    pub share: f64,
    /// `estimate` or `at_most`.
    #[serde(default)]
    pub bound: String,
}

/// The report on a merged database or on the folder of a run; `None` if rpd-report is not built.
///
/// # Errors
/// If it fails, or its JSON is none.
pub fn report_findings(input: &Path) -> Option<Result<ReportFindings, String>> {
    let program = built("rpd-report")?;
    let outcome = Job::new(program).args(["--format", "json"]).arg(input).limit(LIMIT).run();
    if outcome.code() != Some(0) {
        return Some(Err(outcome.to_string()));
    }
    Some(serde_json::from_str(&outcome.stdout).map_err(|error| format!("{error} in {outcome}")))
}
