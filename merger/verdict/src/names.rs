//! Names of threads, nodes and labels.

use crate::analysed_run::AnalysedRun;
use crate::cut::cut_middle;
use rpd_calls::{CallLabel, CallProcess, RunCalls, StepKind};
use rpd_console::wording::{one_line, rank_ranges};
use rpd_graph::FindingSubject;
use std::collections::BTreeSet;

/// Maximum number of characters of a name in a sentence.
const MAX_NAME_CHARS: usize = 48;

/// Returns the process of a timeline.
pub fn process_of(calls: &RunCalls, timeline: u32) -> Option<&CallProcess> {
    let process = calls.job.timelines.get(timeline as usize)?.process;
    calls.processes.get(process as usize)
}

/// Returns the ranks of timelines, ascending.
pub fn ranks_of(calls: &RunCalls, timelines: &[u32]) -> Vec<u32> {
    let ranks = timelines.iter().filter_map(|timeline| process_of(calls, *timeline)?.rank);
    ranks.collect::<BTreeSet<u32>>().into_iter().collect()
}

/// Returns the rank of a subject that is one process: a thread, or streams of its GPUs as well.
pub fn only_rank_of(calls: &RunCalls, subject: &FindingSubject) -> Option<u32> {
    let FindingSubject::Timelines(timelines) = subject else { return None };
    process_of(calls, only_process(calls, timelines)?)?.rank
}

/// Returns a timeline of a process, if all of these are of one.
pub(crate) fn only_process(calls: &RunCalls, timelines: &[u32]) -> Option<u32> {
    let process = |timeline: &u32| calls.job.timelines.get(*timeline as usize).map(|found| found.process);
    let first = timelines.first()?;
    timelines.iter().all(|other| process(other) == process(first)).then_some(*first)
}

/// Returns the hosts of timelines, in the order of their names.
pub(crate) fn hosts_of(calls: &RunCalls, timelines: &[u32]) -> Vec<String> {
    let hosts = timelines.iter().filter_map(|timeline| Some(process_of(calls, *timeline)?.host.clone()));
    hosts.collect::<BTreeSet<String>>().into_iter().collect()
}

/// Returns the GPUs of timelines.
pub(crate) fn gpus_of(calls: &RunCalls, timelines: &[u32]) -> Vec<String> {
    let mut processes: Vec<u32> = timelines
        .iter()
        .filter_map(|timeline| Some(calls.job.timelines.get(*timeline as usize)?.process))
        .collect();
    let mut seen = BTreeSet::new();
    processes.retain(|process| seen.insert(*process));
    processes.iter().filter_map(|process| calls.processes.get(*process as usize)?.gpu.clone()).collect()
}

/// Names what a finding is about: `rank 13 on gpu001 (GPU 5)`, `node gpu001 (ranks 8-15)`, `ranks 3,7`.
pub(crate) fn subject_text(found: &AnalysedRun<'_>, subject: &FindingSubject) -> String {
    let timelines = subject.timelines();
    let ranks = rank_ranges(&ranks_of(found.calls, timelines));
    let hosts = hosts_of(found.calls, timelines);
    match (subject, only_process(found.calls, timelines)) {
        (FindingSubject::Node { .. }, _) => {
            format!("node {} (ranks {ranks})", short(hosts.first().map_or("", String::as_str)))
        }
        (_, Some(timeline)) => timeline_text(found.calls, timeline),
        _ => format!("ranks {ranks}"),
    }
}

/// Names a thread by its rank, host and GPU.
pub(crate) fn timeline_text(calls: &RunCalls, timeline: u32) -> String {
    let Some(process) = process_of(calls, timeline) else { return format!("process {timeline}") };
    let name =
        process.rank.map_or_else(|| "a process without rank".to_owned(), |rank| format!("rank {rank}"));
    let gpu = process.gpu.as_deref().map_or(String::new(), |gpu| format!(" ({})", short(gpu)));
    format!("{name} on {}{gpu}", short(&process.host))
}

/// Names what work or a call is counted under: `range "forward"`, `MPI_Recv`, `GPU work "gemm"`, `no range, after MPI_Recv`.
pub fn label_text(calls: &RunCalls, label: Option<u32>) -> String {
    match label.and_then(|label| calls.labels.get(label as usize)) {
        Some(CallLabel::Range(name)) => format!("range \"{}\"", short(name)),
        Some(CallLabel::Function(name)) => short(name),
        Some(CallLabel::GpuWork(name)) => format!("GPU work \"{}\"", short(name)),
        Some(CallLabel::StreamIdle) => "idle GPU stream".to_owned(),
        Some(CallLabel::Between { before, after }) => {
            let place = [("after", before), ("before", after)];
            let place = place.into_iter().filter_map(|(word, name)| Some((word, name.as_deref()?)));
            let place: Vec<String> = place.map(|(word, name)| format!("{word} {}", short(name))).collect();
            if place.is_empty() {
                "no range".to_owned()
            } else {
                format!("no range, {}", place.join(" and "))
            }
        }
        Some(CallLabel::Other) | None => "other work".to_owned(),
    }
}

/// Returns the word for a step: `step`, or `window` if the run has none.
pub(crate) fn step_word(found: &AnalysedRun<'_>) -> &'static str {
    match found.calls.steps.as_ref().map(|steps| steps.kind) {
        Some(StepKind::Windows { .. }) => "window",
        _ => "step",
    }
}

/// Returns a name on one line, cut in its middle.
pub fn short(name: &str) -> String {
    // Escapes make a name longer.
    cut_middle(&one_line(name), MAX_NAME_CHARS)
}
