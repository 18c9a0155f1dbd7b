//! The analysis of waiting: which rank the others wait for, through messages and collectives.

use crate::why_not::{limit_reason, missing_ranks};
use rpd_calls::RunCalls;
use rpd_console::Failure;
use rpd_graph::{CallGraph, DelayCosts, JobDiagnosis, JobVerdict, WaitAnalysis};

/// The analysed calls of a run.
#[derive(Debug)]
pub struct AnalysedRun<'a> {
    /// The calls.
    pub calls: &'a RunCalls,
    /// What each call depends on.
    pub graph: &'a CallGraph<'a>,
    /// The replay of the calls.
    pub analysis: &'a WaitAnalysis<'a>,
    /// What caused the waiting.
    pub costs: DelayCosts,
    /// Which ranks are named.
    pub diagnosis: JobDiagnosis,
    /// Whether processes of the run are left out.
    pub leaves_out_ranks: bool,
    /// Why no rank is named. If this is not empty, the diagnosis has no finding.
    pub reasons: Vec<String>,
}

/// Analyses the calls of a run, and passes the result on. If processes are left out, which the others may wait for, no
/// rank is named; `left_out` is then the reason.
///
/// # Errors
/// [`Failure::internal`], if the calls contradict themselves, and failures of `use_it`.
pub fn with_analysed_calls<T>(
    calls: &RunCalls,
    left_out: Option<&str>,
    use_it: impl FnOnce(&AnalysedRun<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let graph = CallGraph::new(&calls.job)
        .map_err(|error| Failure::internal(format!("the calls contradict themselves: {error}")))?;
    let analysis = WaitAnalysis::new(&graph);
    let costs = analysis.delay_costs();
    let mut diagnosis = analysis.diagnose(&costs);
    let leaves_out_ranks = left_out.is_some();
    let reasons = if let Some(reason) = left_out {
        // Those that are left out may be the cause of what the others show.
        diagnosis.verdict = JobVerdict::CannotTell;
        diagnosis.findings.clear();
        vec![reason.to_owned()]
    } else {
        let missing = missing_ranks(calls).filter(|_| !diagnosis.limits.is_empty());
        missing.into_iter().chain(diagnosis.limits.iter().map(limit_reason)).collect()
    };
    let (graph, analysis) = (&graph, &analysis);
    use_it(&AnalysedRun { calls, graph, analysis, costs, diagnosis, leaves_out_ranks, reasons })
}
