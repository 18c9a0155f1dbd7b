//! Calls that had not returned when the recording ended: in sentences, and whether they mean that the run hung.

use crate::analysed_run::AnalysedRun;
use crate::names::{label_text, short};
use crate::shown_time::shown_time;
use crate::why_not::missing_ranks;
use rpd_calls::{CallLabel, CallProcess, RunCalls};
use rpd_console::wording::{grouped, rank_ranges};
use rpd_graph::{CallTimeline, CollectiveEntry, JobCalls, MessageRole, OpenCall};
use std::collections::{BTreeMap, BTreeSet};

/// A run hung if no rank entered or left a call for as long as so many steps before take, and for at least so long.
const MIN_STALLED_STEPS: i64 = 10;
const MIN_STALLED_NS: i64 = 1_000_000_000;
/// A run without steps counts as so many.
const PARTS_OF_RUN: i64 = 100;
/// Maximum number of notes of a kind.
const MAX_NOTES: usize = 20;
/// Maximum number of messages that a call names.
const MAX_MESSAGES: usize = 3;
/// Maximum number of functions of a collective that a note names.
const MAX_FUNCTIONS: usize = 4;

/// Why calls did not return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HangCause {
    /// Processes died by a signal or with an exit code other than 0, long before the others ended.
    Died,
    /// Processes entered a collective by different functions or with different roots.
    Disagreement,
    /// Others wait for processes of which no certain wait is known.
    Missing,
    /// Processes wait for one another.
    Deadlock,
    /// The records do not show it.
    Unknown,
}

/// The end of a run that hung.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunHang {
    /// The end of the recording.
    pub(crate) stall: RecordingStall,
    /// Why.
    pub cause: HangCause,
    /// The processes that the cause is about.
    pub suspects: Vec<u32>,
}

impl RunHang {
    /// Returns the end of a run with these open calls, if it hung.
    pub(crate) fn of(calls: &RunCalls, open: &[OpenCall]) -> Option<RunHang> {
        let job = &calls.job;
        let stall = RecordingStall::of(calls).filter(|_| !open.is_empty())?;
        let stalled_ns = stall.ns;
        let start = job.timelines.iter().map(|timeline| timeline.start_ns).min()?;
        let end = job.timelines.iter().map(|timeline| timeline.end_ns).max()?;
        let before_ns = end.saturating_sub(start).saturating_sub(stalled_ns);
        let step_ns = before_ns / if job.steps > 0 { i64::from(job.steps) } else { PARTS_OF_RUN };
        let min_ns = step_ns.saturating_mul(MIN_STALLED_STEPS).max(MIN_STALLED_NS);
        if stalled_ns < min_ns {
            return None;
        }
        let (cause, suspects) = match dead_processes(&calls.processes, stalled_ns) {
            dead if dead.is_empty() => suspects(job, open),
            dead => (HangCause::Died, dead),
        };
        Some(RunHang { stall, cause, suspects: suspects.into_iter().collect() })
    }

    /// Returns the time at the end of the recording in which no rank made progress, ns.
    pub fn stalled_ns(&self) -> i64 {
        self.stall.ns
    }

    /// Returns whether processes died, so that the others could not go on.
    pub fn is_crash(&self) -> bool {
        self.cause == HangCause::Died
    }
}

/// Returns the processes that failed while the others waited on: at least half of that time before the last one ended. A
/// launcher that stops a job ends all of them at about the same time.
fn dead_processes(processes: &[CallProcess], stalled_ns: i64) -> BTreeSet<u32> {
    let Some(last) = processes.iter().filter_map(|process| process.ended_ns).max() else {
        return BTreeSet::new();
    };
    let is_dead = |process: &CallProcess| {
        let is_early = |ended: i64| last.saturating_sub(ended) >= stalled_ns / 2;
        process.failure.is_some() && process.ended_ns.is_some_and(is_early)
    };
    (0u32..).zip(processes).filter(|(_, process)| is_dead(process)).map(|(number, _)| number).collect()
}

fn suspects(job: &JobCalls, open: &[OpenCall]) -> (HangCause, BTreeSet<u32>) {
    let process =
        |call: &OpenCall| job.timelines.get(call.timeline as usize).map(|timeline| timeline.process);
    let differing = open.iter().filter_map(|call| {
        let others = call.collectives.iter().flat_map(|one| one.differing.iter().copied());
        let others: BTreeSet<u32> = others.collect();
        (!others.is_empty()).then(|| others.into_iter().chain(process(call)))
    });
    let differing: BTreeSet<u32> = differing.flatten().collect();
    if !differing.is_empty() {
        return (HangCause::Disagreement, differing);
    }
    let awaited: BTreeSet<u32> = open.iter().flat_map(OpenCall::waits_for).collect();
    let waiting: BTreeSet<u32> =
        open.iter().filter(|call| !call.waits_for().is_empty()).filter_map(process).collect();
    let missing: BTreeSet<u32> = awaited.difference(&waiting).copied().collect();
    if !missing.is_empty() {
        return (HangCause::Missing, missing);
    }
    let in_circles: BTreeSet<u32> = job.deadlocks(open).into_iter().flatten().collect();
    let cause = if in_circles.is_empty() { HangCause::Unknown } else { HangCause::Deadlock };
    (cause, in_circles)
}

/// A call that had not returned, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenCallRow {
    /// Rank of its process.
    pub rank: Option<u32>,
    /// Host of its process.
    pub host: String,
    /// Its function.
    pub call: String,
    /// The collective and messages that it has to complete.
    pub operation: String,
    /// Time since the thread entered it, ns.
    pub open_ns: u64,
    /// The ranks for which it certainly waits, ascending.
    pub waits_for: Vec<u32>,
}

impl AnalysedRun<'_> {
    /// Returns the calls of some processes that had not returned, and notes: for which ranks these calls wait, why, and for
    /// how long nothing changed before the recording ended.
    pub fn describe_open_calls(
        &self,
        is_selected: impl Fn(&CallProcess) -> bool,
    ) -> (Vec<OpenCallRow>, Vec<String>) {
        let process_of = |call: &OpenCall| {
            let timeline = self.calls.job.timelines.get(call.timeline as usize)?;
            self.calls.processes.get(timeline.process as usize)
        };
        let is_listed = |call: &&OpenCall| process_of(call).is_some_and(&is_selected);
        let open: Vec<OpenCall> = self.open_calls.iter().filter(is_listed).cloned().collect();
        let row = |call: &OpenCall| {
            let process = process_of(call)?;
            let timeline = self.calls.job.timelines.get(call.timeline as usize)?;
            let waits_for: Vec<u32> = call.waits_for().into_iter().collect();
            Some(OpenCallRow {
                rank: process.rank,
                host: process.host.clone(),
                call: label_text(self.calls, timeline.calls.last().map(|last| last.label)),
                operation: open_call_text(self.calls, call),
                open_ns: call.open_ns,
                waits_for: ranks(self.calls, &waits_for),
            })
        };
        let mut notes = hang_notes(self, &open);
        notes.extend(RecordingStall::of(self.calls).map(|stall| stall.text(self.calls)));
        (open.iter().filter_map(row).collect(), notes)
    }
}

/// Describes the operations that a call without a return has to complete.
fn open_call_text(calls: &RunCalls, call: &OpenCall) -> String {
    let mut operations: Vec<String> =
        call.collectives.iter().map(|one| collective_text(calls, (one.communicator, one.number))).collect();
    let mut messages: Vec<_> = call.messages.iter().collect();
    // Those whose other ends were begun are shown only if all were.
    if messages.iter().any(|one| one.lacks_other_end != Some(false)) {
        messages.retain(|one| one.lacks_other_end != Some(false));
    }
    for one in messages.iter().take(MAX_MESSAGES) {
        operations.push(message_text(calls, one.end.role, one.process, one.end.tag));
    }
    if let Some(more) = messages.len().checked_sub(MAX_MESSAGES + 1) {
        operations.push(format!("{} more messages", grouped(more as u64 + 1)));
    }
    operations.join(", ")
}

/// Describes for which ranks these calls wait, and why.
pub(crate) fn hang_notes(found: &AnalysedRun<'_>, open: &[OpenCall]) -> Vec<String> {
    let (calls, job) = (found.calls, &found.calls.job);
    let died = found.hang.as_ref().filter(|hang| hang.is_crash());
    let mut notes = Vec::from_iter(died.map(|hang| ends_text(calls, &hang.suspects)));
    for circle in job.deadlocks(open).iter().take(MAX_NOTES) {
        let named = named_ranks(&ranks(calls, circle));
        notes.push(match circle.len() {
            1 => format!("{named} waits for itself: it cannot go on"),
            _ => format!("{named} wait for one another: none of them can go on"),
        });
    }
    let waiting: BTreeSet<u32> =
        open.iter().filter_map(|call| Some(job.timelines.get(call.timeline as usize)?.process)).collect();
    let entered = WaitedCollective::all(open);
    for entered in entered.iter().take(MAX_NOTES) {
        notes.extend(entered.notes(calls, &waiting));
    }
    let absent: BTreeSet<u32> = entered.iter().flat_map(|one| one.missing.iter().copied()).collect();
    let awaited: BTreeSet<u32> = open.iter().flat_map(OpenCall::waits_for).collect();
    // Where those are that others wait for by messages; those that wait themselves are in the table of calls.
    let elsewhere: Vec<u32> = awaited
        .into_iter()
        .filter(|process| !waiting.contains(process) && !absent.contains(process))
        .collect();
    if !elsewhere.is_empty() {
        let (named, states) = (named_ranks(&ranks(calls, &elsewhere)), states(calls, &elsewhere, &waiting));
        notes.push(format!("others wait for messages of {named}, outside of MPI at the end{states}"));
    }
    let differing = open.iter().flat_map(|call| &call.collectives).filter(|one| !one.differing.is_empty());
    let differing: BTreeSet<(u32, u32)> = differing.map(|one| (one.communicator, one.number)).collect();
    for collective in differing.into_iter().take(MAX_NOTES) {
        notes.push(entered_text(calls, collective));
    }
    notes
}

/// Describes how processes ended: `rank 1 died by signal 9 (SIGKILL)`.
pub(crate) fn ends_text(calls: &RunCalls, processes: &[u32]) -> String {
    let mut by_end: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for process in processes {
        let failure = calls.processes.get(*process as usize).and_then(|process| process.failure.as_deref());
        if let Some(failure) = failure {
            by_end.entry(failure).or_default().push(*process);
        }
    }
    let ends =
        by_end.iter().map(|(how, processes)| format!("{} {how}", named_ranks(&ranks(calls, processes))));
    ends.collect::<Vec<String>>().join(", ")
}

/// A collective that not all members entered, by one function.
#[derive(Debug)]
struct WaitedCollective {
    /// Communicator, and number of the collective on it.
    collective: (u32, u32),
    /// Label of the function.
    label: u32,
    missing: BTreeSet<u32>,
    unknown: BTreeSet<u32>,
    /// Number of calls that wait in it.
    inside: u64,
}

impl WaitedCollective {
    /// Returns those in which calls wait.
    fn all(open: &[OpenCall]) -> Vec<WaitedCollective> {
        let mut all: BTreeMap<(u32, u32, u32), WaitedCollective> = BTreeMap::new();
        for one in open.iter().flat_map(|call| &call.collectives) {
            if one.missing.is_empty() && one.unknown.is_empty() {
                continue;
            }
            let collective = (one.communicator, one.number);
            let new = || WaitedCollective {
                collective,
                label: one.label,
                missing: BTreeSet::new(),
                unknown: BTreeSet::new(),
                inside: 0,
            };
            let known = all.entry((one.communicator, one.number, one.label)).or_insert_with(new);
            known.missing.extend(&one.missing);
            known.unknown.extend(&one.unknown);
            known.inside += 1;
        }
        all.into_values().collect()
    }

    fn notes(&self, calls: &RunCalls, waiting: &BTreeSet<u32>) -> Vec<String> {
        let name = label_text(calls, Some(self.label));
        let numbered = match collective_text(calls, self.collective) {
            number if number.is_empty() => name,
            number => format!("{name}, {number}"),
        };
        let inside = match self.inside {
            1 => "1 rank waits".to_owned(),
            several => format!("{} ranks wait", grouped(several)),
        };
        let mut notes = Vec::new();
        let missing: Vec<u32> = self.missing.iter().copied().collect();
        if !missing.is_empty() {
            let (absent, states) = (named_ranks(&ranks(calls, &missing)), states(calls, &missing, waiting));
            notes.push(format!("{absent} did not enter {numbered}, in which {inside}{states}"));
        }
        let unknown: Vec<u32> = self.unknown.iter().copied().collect();
        if !unknown.is_empty() {
            let (named, whose) =
                (named_ranks(&ranks(calls, &unknown)), if unknown.len() == 1 { "its" } else { "their" });
            notes.push(format!(
                "it is not known whether {named} entered {numbered}, in which {inside}: {whose} last calls may be missing"
            ));
        }
        notes
    }
}

/// Returns the ranks of processes, ascending.
pub(crate) fn ranks(calls: &RunCalls, processes: &[u32]) -> Vec<u32> {
    let rank = |process: &u32| calls.processes.get(*process as usize)?.rank;
    processes.iter().filter_map(rank).collect::<BTreeSet<u32>>().into_iter().collect()
}

/// Formats ranks as `rank 2` or `ranks 0-1,5`.
pub(crate) fn named_ranks(ranks: &[u32]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", rank_ranges(ranks))
}

/// Names a collective: `collective 1,205 on MPI_COMM_WORLD`. `MPI_Init` and `MPI_Finalize` have no number.
fn collective_text(calls: &RunCalls, (communicator, number): (u32, u32)) -> String {
    let name = calls.communicators.get(communicator as usize).map_or("", String::as_str);
    match number {
        CollectiveEntry::INIT_NUMBER | CollectiveEntry::FINALIZE_NUMBER => String::new(),
        number => format!("collective {} on {}", grouped(u64::from(number) + 1), short(name)),
    }
}

/// Names the functions, roots and sizes by which ranks entered a collective.
fn entered_text(calls: &RunCalls, collective: (u32, u32)) -> String {
    let mut entered: BTreeMap<(String, i32, u8), Vec<u32>> = BTreeMap::new();
    for timeline in &calls.job.timelines {
        let of_it = timeline.entries.iter();
        for entry in of_it.filter(|entry| (entry.communicator, entry.number) == collective) {
            let label = timeline.calls.get(entry.call as usize).map(|call| call.label);
            let size_class = if entry.is_size_shared { entry.size_class } else { 0 };
            let form = (label_text(calls, label), entry.root, size_class);
            entered.entry(form).or_default().push(timeline.process);
        }
    }
    let has_sizes = entered.keys().map(|(.., size_class)| size_class).collect::<BTreeSet<_>>().len() > 1;
    let part = |((function, root, size_class), processes): (&(String, i32, u8), &Vec<u32>)| {
        let root = if *root < 0 { String::new() } else { format!(" with root {root}") };
        let size = size_text(*size_class).filter(|_| has_sizes).unwrap_or_default();
        format!("{} entered {function}{root}{size}", named_ranks(&ranks(calls, processes)))
    };
    let mut parts: Vec<String> = entered.iter().take(MAX_FUNCTIONS).map(part).collect();
    if entered.len() > MAX_FUNCTIONS {
        parts.push("...".to_owned());
    }
    format!("{}: {}", collective_text(calls, collective), parts.join(", "))
}

/// Describes a [`CollectiveEntry::size_class`]; `None` if the size is not recorded.
fn size_text(class: u8) -> Option<String> {
    let first = |class: u8| 1u64.checked_shl(u32::from(class) - 2);
    match class {
        0 => None,
        1 => Some(" of 0 B".to_owned()),
        2 => Some(" of 1 B".to_owned()),
        class => Some(format!(" of {} to {} B", grouped(first(class)?), grouped(first(class + 1)? - 1))),
    }
}

fn message_text(calls: &RunCalls, role: MessageRole, process: Option<u32>, tag: i32) -> String {
    let rank = process.and_then(|process| calls.processes.get(process as usize)?.rank);
    let other = rank.map_or_else(|| "any rank".to_owned(), |rank| format!("rank {rank}"));
    let tag = if tag == rpd_graph::ANY { "any tag".to_owned() } else { format!("tag {tag}") };
    format!("message {} {other}, {tag}", if role.is_send() { "to" } else { "from" })
}

/// Describes where ranks are that did not enter a collective, if there are few.
fn states(calls: &RunCalls, processes: &[u32], waiting: &BTreeSet<u32>) -> String {
    let state = |process: &u32| {
        let rank = calls.processes.get(*process as usize)?.rank?;
        let threads = calls.job.timelines.iter();
        let threads = threads.filter(|timeline| timeline.process == *process && !timeline.is_stream);
        let last = threads.filter_map(|timeline| timeline.calls.last()).max_by_key(|call| call.exit_ns())?;
        let name = label_text(calls, Some(last.label));
        if waiting.contains(process) {
            return Some(format!("rank {rank} is in {name}"));
        }
        let of_process = calls.job.timelines.iter().find(|timeline| timeline.process == *process)?;
        let of_node = calls.job.timelines.iter().filter(|timeline| timeline.node == of_process.node);
        let outside_ns = of_node.map(|timeline| timeline.end_ns).max()?.saturating_sub(last.exit_ns());
        let how = early_end(calls, *process).map_or(String::new(), |end| format!(", and {end}"));
        Some(format!("rank {rank} returned from {name} {} before the end{how}", shown_time(outside_ns)))
    };
    match processes.len() {
        1..=3 => format!("; {}", processes.iter().filter_map(state).collect::<Vec<_>>().join(", ")),
        _ => String::new(),
    }
}

/// Describes how a process failed, and how long before the last process ended.
fn early_end(calls: &RunCalls, process: u32) -> Option<String> {
    let ended = calls.processes.get(process as usize)?;
    let last = calls.processes.iter().filter_map(|process| process.ended_ns).max()?;
    let earlier_ns = last.saturating_sub(ended.ended_ns?);
    let failure = ended.failure.as_ref()?;
    Some(format!("{failure} {} before the last process ended", shown_time(earlier_ns)))
}

/// The end of a recording in which no rank made progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordingStall {
    /// From the last entry into a call, or return from one, to the end of the recording, ns: the shortest of all nodes, as
    /// their clocks may not be comparable. Polls that find nothing do not count.
    ns: i64,
    /// Whether ranks poll meanwhile.
    has_polls: bool,
}

impl RecordingStall {
    /// Returns the end of a recording; `None` if no call is open.
    fn of(calls: &RunCalls) -> Option<RecordingStall> {
        let job = &calls.job;
        let _ = job.timelines.iter().find(|timeline| timeline.is_open)?;
        let mut of_nodes: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        let mut has_polls = false;
        for timeline in &job.timelines {
            let (change, is_polling) = last_change(calls, timeline);
            has_polls |= is_polling;
            let (changed, end) = of_nodes.entry(timeline.node).or_insert((change, timeline.end_ns));
            (*changed, *end) = (change.max(*changed), timeline.end_ns.max(*end));
        }
        let ns = of_nodes.values().map(|(changed, end)| end.saturating_sub(*changed)).min()?;
        Some(RecordingStall { ns, has_polls })
    }

    /// Describes it.
    pub(crate) fn text(self, calls: &RunCalls) -> String {
        let rank = if missing_ranks(calls).next().is_some() { "recorded rank" } else { "rank" };
        let time = shown_time(self.ns);
        match self.has_polls {
            true => format!("no {rank} did more than poll in the last {time} of the recording"),
            false => format!("no {rank} entered or left a call in the last {time} of the recording"),
        }
    }
}

/// Returns when a thread last entered or left a call that is no vain poll, ns in job time, and whether it polled after that.
fn last_change(calls: &RunCalls, timeline: &CallTimeline) -> (i64, bool) {
    let Some(last) = timeline.calls.last() else { return (timeline.start_ns, false) };
    if timeline.is_open && !is_poll(calls, last.label) {
        return (last.enter_ns, false);
    }
    let last_of_each = [
        timeline.message_ends.last().map(|end| end.call),
        timeline.entries.last().map(|entry| entry.call),
        timeline.completions.last().map(|completion| completion.call),
        timeline.local_dependencies.last().map(|dependency| dependency.call),
    ];
    let first_vain = last_of_each.into_iter().flatten().max().map_or(0, |call| call as usize + 1);
    let vain = timeline.calls.get(first_vain..).unwrap_or_default();
    match !vain.is_empty() && vain.iter().all(|call| is_poll(calls, call.label)) {
        true => (vain.first().map_or(timeline.start_ns, |call| call.enter_ns), true),
        false => (last.exit_ns(), false),
    }
}

/// Returns whether a label is that of a function that tests for messages or completions.
fn is_poll(calls: &RunCalls, label: u32) -> bool {
    let Some(CallLabel::Function(name)) = calls.labels.get(label as usize) else { return false };
    let name = name.trim_start_matches('P');
    name.starts_with("MPI_Test") || matches!(name, "MPI_Iprobe" | "MPI_Improbe" | "MPI_Request_get_status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_died_if_they_failed_while_others_waited_on() {
        let process = |failure: Option<&str>, ended_ns: Option<i64>| CallProcess {
            rank: None,
            host: String::new(),
            gpu: None,
            is_python: false,
            failure: failure.map(str::to_owned),
            ended_ns,
            run_process: 0,
        };
        let killed = |time_ns| process(Some("died by signal 9 (SIGKILL)"), Some(time_ns));
        let stopped = || process(Some("died by signal 15 (SIGTERM)"), Some(3_000));
        let dead = |processes: &[CallProcess]| Vec::from_iter(dead_processes(processes, 2_000));
        assert_eq!(dead(&[stopped(), killed(1_000), stopped(), killed(900)]), [1, 3]);
        assert_eq!(dead(&[stopped(), killed(2_500), stopped()]), [0u32; 0], "all were stopped");
        let left = process(None, Some(1_000));
        let lost = process(Some("died by signal 9"), None);
        assert_eq!(dead(&[stopped(), left, lost, process(None, None)]), [0u32; 0]);
    }
}
