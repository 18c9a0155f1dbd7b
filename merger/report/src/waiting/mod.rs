//! The analysis of waiting: which rank the others wait for, through messages and collectives.

mod doubts;
mod names;
mod verdict;
mod why_not;

pub(crate) use doubts::doubts;
pub(crate) use names::{label_text, only_rank_of, process_of, ranks_of, short};
pub(crate) use verdict::verdict_lines;
pub(crate) use why_not::missing_reasons;

use crate::input::ReportRun;
use rpd_calls::{ReadOptions, RunCalls};
use rpd_console::Failure;
use rpd_console::wording::one_line;
use rpd_graph::{CallGraph, DelayCosts, JobDiagnosis, JobVerdict, WaitAnalysis};
use why_not::{LEFT_OUT, limit_reason, missing_ranks};

/// The analysed calls of a run.
pub(crate) struct AnalysedRun<'a> {
    pub(crate) calls: &'a RunCalls,
    pub(crate) graph: &'a CallGraph<'a>,
    pub(crate) analysis: &'a WaitAnalysis<'a>,
    pub(crate) costs: DelayCosts,
    pub(crate) diagnosis: JobDiagnosis,
    /// Whether `--ranks` or `--nodes` leave out processes.
    pub(crate) leaves_out_ranks: bool,
    /// Why no rank is named. If this is not empty, the diagnosis has no finding.
    pub(crate) reasons: Vec<String>,
}

/// Reads the calls of the run, analyses them, and passes the result on.
pub(crate) fn with_analysis<T>(
    run: &ReportRun,
    use_it: impl FnOnce(&AnalysedRun<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let selection = &run.selection;
    let options = ReadOptions { step: selection.step.clone(), window_ns: selection.window_ns() };
    let calls = RunCalls::read(&run.database, &options)?;
    if let Some(step) = selection.step.as_deref().filter(|_| calls.steps.is_none() && calls.job.processes > 0)
    {
        let name = one_line(step);
        return Err(Failure::usage(format!("no ranges named {name} mark steps of all ranks; check --step")));
    }
    let graph = CallGraph::new(&calls.job)
        .map_err(|error| Failure::internal(format!("the calls contradict themselves: {error}")))?;
    let analysis = WaitAnalysis::new(&graph);
    let costs = analysis.delay_costs();
    let mut diagnosis = analysis.diagnose(&costs);
    let leaves_out_ranks = selection.is_restricted();
    let reasons = if leaves_out_ranks {
        // Those that are left out may be the cause of what the others show.
        diagnosis.verdict = JobVerdict::CannotTell;
        diagnosis.findings.clear();
        vec![LEFT_OUT.to_owned()]
    } else {
        let missing = missing_ranks(&calls).filter(|_| !diagnosis.limits.is_empty());
        missing.into_iter().chain(diagnosis.limits.iter().map(limit_reason)).collect()
    };
    let (calls, graph, analysis) = (&calls, &graph, &analysis);
    use_it(&AnalysedRun { calls, graph, analysis, costs, diagnosis, leaves_out_ranks, reasons })
}
