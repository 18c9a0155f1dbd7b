//! Calls that had not returned when the recording ended, and which ranks they wait for: `rpd-report hang`.

use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::waiting::{AnalysedRun, ListedParts, label_text, missing_reasons, no_calls, short, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_console::wording::{grouped, rank_ranges};
use rpd_graph::MessageRole;
use rpd_verdict::shown_time;
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: [(&str, &str); 6] = [
    ("rank", "rank"),
    ("host", "host"),
    ("call", "call"),
    ("operation", "on"),
    ("open_ns", "for"),
    ("waits_for", "waits for ranks"),
];

/// Maximum number of notes of a kind.
const MAX_NOTES: usize = 20;
/// Maximum number of messages that a call names.
const MAX_MESSAGES: usize = 3;
/// Maximum number of functions of a collective that a note names.
const MAX_FUNCTIONS: usize = 4;

/// Makes the report.
pub(crate) fn report_hang(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    let listed = ListedParts { messages: true, ..ListedParts::default() };
    with_analysis(run, comm, listed, |found| {
        let job = &found.calls.job;
        let open = job.open_calls();
        let mut table = ReportTable::new("hang", &COLUMNS);
        let mut missing: BTreeMap<(u32, u32, String), (BTreeSet<u32>, u64)> = BTreeMap::new();
        let mut differing: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut waiting = BTreeSet::new();
        for call in &open {
            let timeline = &job.timelines[call.timeline as usize];
            let process = &found.calls.processes[timeline.process as usize];
            if !run.selection.contains(process.run_process as u32) {
                continue;
            }
            let name = label_text(found.calls, timeline.calls.last().map(|last| last.label));
            waiting.insert(timeline.process);
            let mut operations = Vec::new();
            for one in &call.collectives {
                operations.push(collective_text(found, one.communicator, one.number));
                if !one.missing.is_empty() {
                    let key = (one.communicator, one.number, name.clone());
                    let (absent, inside) = missing.entry(key).or_default();
                    absent.extend(&one.missing);
                    *inside += 1;
                }
                if !one.differing.is_empty() {
                    differing.insert((one.communicator, one.number));
                }
            }
            let mut messages: Vec<_> = call.messages.iter().collect();
            // Those whose other ends were begun are shown only if all were.
            if messages.iter().any(|one| one.lacks_other_end != Some(false)) {
                messages.retain(|one| one.lacks_other_end != Some(false));
            }
            for one in messages.iter().take(MAX_MESSAGES) {
                operations.push(message_text(found, one.end.role, one.process, one.end.tag));
            }
            if let Some(more) = messages.len().checked_sub(MAX_MESSAGES + 1) {
                operations.push(format!("{} more messages", grouped(more as u64 + 1)));
            }
            let waits_for: Vec<u32> = call.waits_for().into_iter().collect();
            table.push_up_to(
                max_rows,
                vec![
                    Cell::known(process.rank, |rank| Cell::Count(rank.into())),
                    Cell::Text(process.host.clone()),
                    Cell::Text(name),
                    Cell::Text(operations.join(", ")),
                    Cell::sum(call.open_ns.into()),
                    Cell::Ranks(ranks(found, &waits_for)),
                ],
            );
        }
        let mut notes = Vec::new();
        for circle in job.deadlocks(&open).iter().take(MAX_NOTES) {
            let circle = named_ranks(&ranks(found, circle));
            notes.push(format!("{circle} wait for one another: none of them can go on"));
        }
        for ((communicator, number, name), (absent, inside)) in missing.iter().take(MAX_NOTES) {
            let absent: Vec<u32> = absent.iter().copied().collect();
            let numbered = collective_text(found, *communicator, *number);
            let states = states(found, &absent, &waiting);
            let absent = named_ranks(&ranks(found, &absent));
            let inside = match inside {
                1 => "1 rank waits".to_owned(),
                several => format!("{} ranks wait", grouped(*several)),
            };
            notes.push(format!("{absent} did not enter {name}, {numbered}, in which {inside}{states}"));
        }
        for (communicator, number) in differing.iter().take(MAX_NOTES) {
            notes.push(entered_text(found, *communicator, *number));
        }
        if let Some(ns) = time_since_last_change(found) {
            notes.push(format!(
                "no rank entered or left a call in the last {} of the recording",
                shown_time(ns)
            ));
        }
        let mut unavailable = missing_reasons(found.calls);
        unavailable.extend(table.unknown_values(&[("rank", "the process has no rank")]));
        if job.timelines.is_empty() {
            unavailable.push(no_calls("hang", found.calls));
        } else if open.is_empty() {
            let reason = "all calls of the selected ranks had returned when the recording ended";
            unavailable.push(Unavailable::new("hang", reason));
        }
        Ok(Report { subject: "hang", run: run.head(), tables: vec![table], notes, unavailable, screen: None })
    })
}

fn ranks(found: &AnalysedRun<'_>, processes: &[u32]) -> Vec<u32> {
    let rank = |process: &u32| found.calls.processes.get(*process as usize)?.rank;
    processes.iter().filter_map(rank).collect::<BTreeSet<u32>>().into_iter().collect()
}

/// Formats ranks as `rank 2` or `ranks 0-1,5`.
fn named_ranks(ranks: &[u32]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", rank_ranges(ranks))
}

/// Names a collective: `number 1,205 on MPI_COMM_WORLD`.
fn collective_text(found: &AnalysedRun<'_>, communicator: u32, number: u32) -> String {
    let name = found.calls.communicators.get(communicator as usize).map_or("", String::as_str);
    match number {
        rpd_graph::CollectiveEntry::INIT_NUMBER | rpd_graph::CollectiveEntry::FINALIZE_NUMBER => short(name),
        number => format!("number {} on {}", grouped(u64::from(number) + 1), short(name)),
    }
}

/// Names the functions and roots by which ranks entered a collective.
fn entered_text(found: &AnalysedRun<'_>, communicator: u32, number: u32) -> String {
    let mut entered: BTreeMap<(String, i32), Vec<u32>> = BTreeMap::new();
    for timeline in &found.calls.job.timelines {
        let of_it = timeline.entries.iter();
        for entry in of_it.filter(|entry| (entry.communicator, entry.number) == (communicator, number)) {
            let label = timeline.calls.get(entry.call as usize).map(|call| call.label);
            entered.entry((label_text(found.calls, label), entry.root)).or_default().push(timeline.process);
        }
    }
    let part = |((function, root), processes): (&(String, i32), &Vec<u32>)| {
        let root = if *root < 0 { String::new() } else { format!(" with root {root}") };
        format!("{} entered {function}{root}", named_ranks(&ranks(found, processes)))
    };
    let mut parts: Vec<String> = entered.iter().take(MAX_FUNCTIONS).map(part).collect();
    if entered.len() > MAX_FUNCTIONS {
        parts.push("...".to_owned());
    }
    format!("{}: {}", collective_text(found, communicator, number), parts.join(", "))
}

fn message_text(found: &AnalysedRun<'_>, role: MessageRole, process: Option<u32>, tag: i32) -> String {
    let rank = process.and_then(|process| found.calls.processes.get(process as usize)?.rank);
    let other = rank.map_or_else(|| "any rank".to_owned(), |rank| format!("rank {rank}"));
    let tag = if tag == rpd_graph::ANY { "any tag".to_owned() } else { format!("tag {tag}") };
    format!("{} {other}, {tag}", if role.is_send() { "to" } else { "from" })
}

/// Describes where ranks are that did not enter a collective, if there are few.
fn states(found: &AnalysedRun<'_>, processes: &[u32], waiting: &BTreeSet<u32>) -> String {
    let state = |process: &u32| {
        let rank = found.calls.processes.get(*process as usize)?.rank?;
        let timelines = found.calls.job.timelines.iter().filter(|timeline| timeline.process == *process);
        let last =
            timelines.filter_map(|timeline| timeline.calls.last()).max_by_key(|call| call.exit_ns())?;
        let name = label_text(found.calls, Some(last.label));
        let place = if waiting.contains(process) { "is in" } else { "has returned from" };
        Some(format!("rank {rank} {place} {name}"))
    };
    match processes.len() {
        1..=3 => format!("; {}", processes.iter().filter_map(state).collect::<Vec<_>>().join(", ")),
        _ => String::new(),
    }
}

/// Returns the time from the last entry into a call, or return from one, to the end of the recording, ns; `None` if no
/// call is open.
fn time_since_last_change(found: &AnalysedRun<'_>) -> Option<i64> {
    let timelines = || found.calls.job.timelines.iter();
    let _ = timelines().find(|timeline| timeline.is_open)?;
    let end = timelines().map(|timeline| timeline.end_ns).max()?;
    let changes = timelines().filter_map(|timeline| {
        let last = timeline.calls.last()?;
        Some(if timeline.is_open { last.enter_ns } else { last.exit_ns() })
    });
    Some(end.saturating_sub(changes.max()?))
}
