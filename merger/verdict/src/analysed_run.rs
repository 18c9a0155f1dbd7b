//! The analysis of waiting: which rank the others wait for, through messages and collectives.

use crate::hang::RunHang;
use crate::why_not::{NO_COMMUNICATORS, limit_reason, missing_ranks};
use rpd_calls::{MissingCalls, RunCalls};
use rpd_console::Failure;
use rpd_graph::{
    CallDependencies, CallGraph, CallTimeline, CollectiveEntry, DelayCosts, DiagnosisLimit, JobDiagnosis,
    JobEfficiency, JobVerdict, OpenCall, WaitAnalysis,
};

/// If the last calls of a rank are missing, this share of the run at most may lack them for a verdict.
const MAX_MISSING_END: f64 = 0.05;

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
    pub costs: &'a DelayCosts,
    /// Which ranks are named.
    pub diagnosis: JobDiagnosis,
    /// How much of the time of threads is work, if any are recorded.
    pub efficiency: Option<JobEfficiency>,
    /// How much of the time of GPUs is work, if the job uses some.
    pub gpu_efficiency: Option<JobEfficiency>,
    /// Calls that had not returned when the recording ended.
    pub open_calls: Vec<OpenCall>,
    /// Whether the run hung.
    pub hang: Option<RunHang>,
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
        let lacks_communicators = lacks_communicators(&calls);
        let open_calls = calls.job.open_calls();
        let hang = RunHang::of(&calls, &open_calls).filter(|_| self.left_out.is_none());
        if !self.keeps_messages {
            calls.job.forget_messages();
        }
        let calls = &calls;
        let graph = in_pool(|| CallGraph::of(&calls.job, found));
        let analysis = in_pool(|| WaitAnalysis::new(&graph));
        let (mut diagnosis, (efficiency, gpu_efficiency)) =
            rayon::join(|| analysis.diagnose(), || (analysis.efficiency(), analysis.gpu_efficiency()));
        let leaves_out_ranks = self.left_out.is_some();
        let reasons = if let Some(reason) = self.left_out {
            // Those that are left out may be the cause of what the others show.
            diagnosis.verdict = JobVerdict::CannotTell;
            diagnosis.findings.clear();
            diagnosis.doubtful_network = None;
            vec![reason.to_owned()]
        } else if hang.is_some() {
            // The time in open calls is not that of communication.
            diagnosis.verdict = JobVerdict::CannotTell;
            diagnosis.findings.clear();
            let reason =
                if hang.as_ref().is_some_and(RunHang::is_crash) { "ranks died" } else { "the run hung" };
            missing_ranks(calls).chain([reason.to_owned()]).collect()
        } else if ends_early(calls) {
            diagnosis.verdict = JobVerdict::CannotTell;
            diagnosis.findings.clear();
            missing_ranks(calls).collect()
        } else {
            let missing = missing_ranks(calls).filter(|_| !diagnosis.limits.is_empty());
            missing.chain(limit_reasons(&diagnosis.limits, calls, lacks_communicators)).collect()
        };
        if !reasons.is_empty() {
            diagnosis.network = None;
        }
        let (graph, analysis) = (&graph, &analysis);
        use_it(&AnalysedRun {
            calls,
            graph,
            analysis,
            costs: analysis.delay_costs(),
            diagnosis,
            efficiency,
            gpu_efficiency,
            open_calls,
            hang,
            leaves_out_ranks,
            reasons,
        })
    }
}

/// Returns whether the records of a rank of which the last calls are missing end long before those of others.
fn ends_early(calls: &RunCalls) -> bool {
    let unfinished = calls.unavailable.iter().filter_map(|missing| match missing {
        MissingCalls::UnfinishedRanks(ranks) => Some(ranks),
        _ => None,
    });
    let unfinished: Vec<u32> = unfinished.flatten().copied().collect();
    let timelines = || calls.job.timelines.iter();
    // Ends of other nodes may be by clocks that are not comparable; those of most ranks are about equal.
    let length =
        timelines().map(|timeline| timeline.end_ns.saturating_sub(timeline.start_ns)).max().unwrap_or(0);
    let tolerated = (length as f64 * MAX_MISSING_END) as i64;
    let rank_of = |timeline: &CallTimeline| calls.processes.get(timeline.process as usize)?.rank;
    let mut unfinished = timelines().filter(|timeline| {
        !timeline.is_stream && rank_of(timeline).is_some_and(|rank| unfinished.contains(&rank))
    });
    unfinished
        .any(|timeline| length.saturating_sub(timeline.end_ns.saturating_sub(timeline.start_ns)) > tolerated)
}

/// Returns whether all messages and collectives lack a communicator.
fn lacks_communicators(calls: &RunCalls) -> bool {
    let is_numbered = |entry: &CollectiveEntry| entry.number < CollectiveEntry::INIT_NUMBER;
    let has_some = |timeline: &CallTimeline| {
        !timeline.message_ends.is_empty() || timeline.entries.iter().any(is_numbered)
    };
    let some_lack =
        calls.unavailable.iter().any(|one| matches!(one, MissingCalls::WithoutCommunicator { .. }));
    some_lack && !calls.job.timelines.iter().any(has_some)
}

/// Describes what forbids to name a rank. Without communicators, most limits follow from that.
fn limit_reasons(limits: &[DiagnosisLimit], calls: &RunCalls, lacks_communicators: bool) -> Vec<String> {
    let is_of_threads = limits.iter().any(|limit| matches!(limit, DiagnosisLimit::Threads { .. }));
    match lacks_communicators && !is_of_threads && !limits.is_empty() {
        true => vec![NO_COMMUNICATORS.to_owned()],
        false => limits.iter().map(|limit| limit_reason(limit, calls)).collect(),
    }
}

/// Runs a computation on a thread of the pool that has read the calls. The memory that these have released belongs to the
/// arenas of its threads; other threads would take as much again from the system.
fn in_pool<T: Send>(compute: impl FnOnce() -> T + Send) -> T {
    rayon::scope(|_| compute())
}
