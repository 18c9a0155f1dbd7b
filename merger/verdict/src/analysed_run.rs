//! The analysis of waiting: which rank the others wait for, through messages and collectives.

use crate::why_not::{limit_reason, missing_ranks};
use rpd_calls::RunCalls;
use rpd_console::Failure;
use rpd_graph::{
    CallDependencies, CallGraph, DelayCosts, JobDiagnosis, JobEfficiency, JobVerdict, WaitAnalysis,
};

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
    /// How much of the time is work.
    pub efficiency: JobEfficiency,
    /// Whether processes of the run are left out.
    pub leaves_out_ranks: bool,
    /// Why no rank is named. If this is not empty, the diagnosis has no finding.
    pub reasons: Vec<String>,
}

/// How calls are analysed.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnalysisOptions<'a> {
    /// Why processes are left out. As the others may wait for these, no rank is named then.
    pub left_out: Option<&'a str>,
    /// Whether messages can be listed afterwards. Otherwise their memory is released.
    pub keeps_messages: bool,
}

impl AnalysisOptions<'_> {
    /// Analyses the calls of a run, and passes the result on.
    ///
    /// # Errors
    /// [`Failure::internal`], if the calls contradict themselves, and failures of `use_it`.
    pub fn analyse<T>(
        self,
        mut calls: RunCalls,
        use_it: impl FnOnce(&AnalysedRun<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let found = in_pool(|| CallDependencies::find(&calls.job))
            .map_err(|error| Failure::internal(format!("the calls contradict themselves: {error}")))?;
        if !self.keeps_messages {
            calls.job.forget_messages();
        }
        let calls = &calls;
        let graph = CallGraph::of(&calls.job, found);
        let analysis = in_pool(|| WaitAnalysis::new(&graph));
        let ((costs, mut diagnosis), efficiency) =
            rayon::join(|| analysis.diagnose(), || analysis.efficiency());
        let leaves_out_ranks = self.left_out.is_some();
        let reasons = if let Some(reason) = self.left_out {
            // Those that are left out may be the cause of what the others show.
            diagnosis.verdict = JobVerdict::CannotTell;
            diagnosis.findings.clear();
            vec![reason.to_owned()]
        } else {
            let missing = missing_ranks(calls).filter(|_| !diagnosis.limits.is_empty());
            missing.chain(diagnosis.limits.iter().map(limit_reason)).collect()
        };
        let (graph, analysis) = (&graph, &analysis);
        use_it(&AnalysedRun {
            calls,
            graph,
            analysis,
            costs,
            diagnosis,
            efficiency,
            leaves_out_ranks,
            reasons,
        })
    }
}

/// Runs a computation on a thread of the pool that has read the calls. The memory that these have released belongs to the
/// arenas of its threads; other threads would take as much again from the system.
fn in_pool<T: Send>(compute: impl FnOnce() -> T + Send) -> T {
    rayon::scope(|_| compute())
}
