//! The analysis of waiting: which rank the others wait for, through messages and collectives.

mod names;
mod verdict;
mod why_not;

pub(crate) use names::{label_text, process_of};
pub(crate) use verdict::verdict_lines;
pub(crate) use why_not::{limit_reason, missing_reasons};

use crate::input::ReportRun;
use rpd_calls::{ReadOptions, RunCalls};
use rpd_console::Failure;
use rpd_graph::{CallGraph, DelayCosts, JobDiagnosis, WaitAnalysis};

/// The analysed calls of a run.
pub(crate) struct AnalysedRun<'a> {
    pub(crate) calls: &'a RunCalls,
    pub(crate) graph: &'a CallGraph<'a>,
    pub(crate) analysis: &'a WaitAnalysis<'a>,
    pub(crate) costs: DelayCosts,
    pub(crate) diagnosis: JobDiagnosis,
}

/// Reads the calls of the run, analyses them, and passes the result on.
pub(crate) fn with_analysis<T>(
    run: &ReportRun,
    use_it: impl FnOnce(&AnalysedRun<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let selection = &run.selection;
    let options = ReadOptions { step: selection.step.clone(), window_ns: selection.window_ns() };
    let calls = RunCalls::read(&run.database, &options)?;
    let graph = CallGraph::new(&calls.job)
        .map_err(|error| Failure::internal(format!("the calls contradict themselves: {error}")))?;
    let analysis = WaitAnalysis::new(&graph);
    let costs = analysis.delay_costs();
    let diagnosis = analysis.diagnose(&costs);
    use_it(&AnalysedRun { calls: &calls, graph: &graph, analysis: &analysis, costs, diagnosis })
}
