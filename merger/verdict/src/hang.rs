//! Calls that had not returned when the recording ended: in sentences, and whether they mean that the run hung.

use crate::analysed_run::AnalysedRun;
use crate::names::{label_text, short};
use crate::shown_time::shown_time;
use rpd_calls::{CallProcess, RunCalls};
use rpd_console::wording::{grouped, rank_ranges};
use rpd_graph::{CollectiveEntry, JobCalls, MessageRole, OpenCall};
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
    /// Time from the last entry into a call, or return from one, to the end of the recording, ns.
    pub stalled_ns: i64,
    /// Why.
    pub cause: HangCause,
    /// The processes that the cause is about.
    pub suspects: Vec<u32>,
}

impl RunHang {
    /// Returns the end of a run with these open calls, if it hung.
    pub(crate) fn of(job: &JobCalls, open: &[OpenCall]) -> Option<RunHang> {
        let stalled_ns = time_since_last_change(job).filter(|_| !job.is_part && !open.is_empty())?;
        let start = job.timelines.iter().map(|timeline| timeline.start_ns).min()?;
        let end = job.timelines.iter().map(|timeline| timeline.end_ns).max()?;
        let before_ns = end.saturating_sub(start).saturating_sub(stalled_ns);
        let step_ns = before_ns / if job.steps > 0 { i64::from(job.steps) } else { PARTS_OF_RUN };
        let min_ns = step_ns.saturating_mul(MIN_STALLED_STEPS).max(MIN_STALLED_NS);
        let (cause, suspects) = if stalled_ns >= min_ns { suspects(job, open) } else { return None };
        Some(RunHang { stalled_ns, cause, suspects: suspects.into_iter().collect() })
    }
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
        notes.extend(time_since_last_change(&self.calls.job).map(stall_text));
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
    let mut notes = Vec::new();
    for circle in job.deadlocks(open).iter().take(MAX_NOTES) {
        let named = named_ranks(&ranks(calls, circle));
        notes.push(match circle.len() {
            1 => format!("{named} waits for itself: it cannot go on"),
            _ => format!("{named} wait for one another: none of them can go on"),
        });
    }
    let waiting: BTreeSet<u32> =
        open.iter().filter_map(|call| Some(job.timelines.get(call.timeline as usize)?.process)).collect();
    for entered in WaitedCollective::all(open).iter().take(MAX_NOTES) {
        notes.extend(entered.notes(calls, &waiting));
    }
    let differing = open.iter().flat_map(|call| &call.collectives).filter(|one| !one.differing.is_empty());
    let differing: BTreeSet<(u32, u32)> = differing.map(|one| (one.communicator, one.number)).collect();
    for collective in differing.into_iter().take(MAX_NOTES) {
        notes.push(entered_text(calls, collective));
    }
    notes
}

pub(crate) fn stall_text(stalled_ns: i64) -> String {
    format!("no rank entered or left a call in the last {} of the recording", shown_time(stalled_ns))
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

/// Names the functions and roots by which ranks entered a collective.
fn entered_text(calls: &RunCalls, collective: (u32, u32)) -> String {
    let mut entered: BTreeMap<(String, i32), Vec<u32>> = BTreeMap::new();
    for timeline in &calls.job.timelines {
        let of_it = timeline.entries.iter();
        for entry in of_it.filter(|entry| (entry.communicator, entry.number) == collective) {
            let label = timeline.calls.get(entry.call as usize).map(|call| call.label);
            entered.entry((label_text(calls, label), entry.root)).or_default().push(timeline.process);
        }
    }
    let part = |((function, root), processes): (&(String, i32), &Vec<u32>)| {
        let root = if *root < 0 { String::new() } else { format!(" with root {root}") };
        format!("{} entered {function}{root}", named_ranks(&ranks(calls, processes)))
    };
    let mut parts: Vec<String> = entered.iter().take(MAX_FUNCTIONS).map(part).collect();
    if entered.len() > MAX_FUNCTIONS {
        parts.push("...".to_owned());
    }
    format!("{}: {}", collective_text(calls, collective), parts.join(", "))
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
        let place = if waiting.contains(process) { "is in" } else { "has returned from" };
        Some(format!("rank {rank} {place} {name}"))
    };
    match processes.len() {
        1..=3 => format!("; {}", processes.iter().filter_map(state).collect::<Vec<_>>().join(", ")),
        _ => String::new(),
    }
}

/// Returns the time from the last entry into a call, or return from one, to the end of the recording, ns: the shortest of
/// all nodes, as their clocks may not be comparable. `None` if no call is open.
fn time_since_last_change(job: &JobCalls) -> Option<i64> {
    let _ = job.timelines.iter().find(|timeline| timeline.is_open)?;
    let mut of_nodes: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for timeline in &job.timelines {
        let last = timeline.calls.last();
        let change = last.map_or(timeline.start_ns, |last| match timeline.is_open {
            true => last.enter_ns,
            false => last.exit_ns(),
        });
        let (changed, end) = of_nodes.entry(timeline.node).or_insert((change, timeline.end_ns));
        (*changed, *end) = (change.max(*changed), timeline.end_ns.max(*end));
    }
    of_nodes.values().map(|(changed, end)| end.saturating_sub(*changed)).min()
}
