//! What each rank causes: `rpd-report blame`; with `--rank`, each kind of work of one rank beside that of the others.

use crate::evidence::wait_evidence;
use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::waiting::{AnalysedRun, ListedParts, label_text, missing_reasons, process_of, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;

const RANK_COLUMNS: [(&str, &str); 12] = [
    ("rank", "rank"),
    ("host", "host"),
    ("gpu", "GPU"),
    ("unit", "on"),
    ("work_ns", "work"),
    ("waited_ns", "waits"),
    ("communication_ns", "communicates"),
    ("caused_direct_ns", "others wait"),
    ("caused_propagated_ns", "by way of others"),
    ("gain_ns", "gain"),
    ("gain_error_bound_ns", "+-"),
    ("largest_cause", "most by"),
];

const LABEL_COLUMNS: [(&str, &str); 6] = [
    ("label", "work"),
    ("unit", "on"),
    ("step_ns", "a step"),
    ("typical_step_ns", "typical"),
    ("caused_direct_ns", "others wait"),
    ("caused_propagated_ns", "by way of others"),
];

/// Makes the report of all ranks, or of the work of one. `explained` is the maximum number of calls that are listed.
pub(crate) fn report_blame(
    run: &ReportRun,
    comm: &dyn Comm,
    rank: Option<u32>,
    max_rows: usize,
    explained: Option<usize>,
) -> Result<Option<Report>, Failure> {
    let listed = ListedParts { row_keys: explained.is_some(), ..ListedParts::default() };
    with_analysis(run, comm, listed, |found| {
        let table = match rank {
            None => rank_table(found, max_rows),
            Some(rank) => label_table(found, rank, max_rows)?,
        };
        let mut unavailable = missing_reasons(found.calls);
        if rank.is_none() {
            unavailable.extend(unknown_of_ranks(&table));
        }
        let notes = found.reasons.iter();
        let mut notes: Vec<String> =
            notes.map(|reason| format!("these figures do not name a rank: {reason}")).collect();
        let mut tables = vec![table];
        if let Some(max_listed) = explained {
            let causes = match rank {
                Some(rank) => timelines_of_rank(found, rank)?,
                None => first_causes(found),
            };
            let evidence = wait_evidence(run, found, &causes, max_listed)?;
            tables.extend(evidence.tables);
            notes.extend(evidence.notes);
            unavailable.extend(evidence.unavailable);
        }
        Ok(Report { subject: "blame", run: run.head(), tables, notes, unavailable, screen: None })
    })
}

/// Returns why values of the table of ranks are not known.
pub(crate) fn unknown_of_ranks(table: &ReportTable) -> Vec<Unavailable> {
    let gain = "the gain is computed for the ranks that caused the most waiting";
    table.unknown_values(&[
        ("rank", "the process has no rank"),
        ("gpu", "the process has no GPU or several"),
        ("gain_ns", gain),
        ("gain_error_bound_ns", gain),
        ("largest_cause", "nobody waited for it"),
    ])
}

/// Returns a row for each thread and stream, the one that caused the most waiting first.
pub(crate) fn rank_table(found: &AnalysedRun<'_>, max_rows: usize) -> ReportTable {
    let mut table = ReportTable::new("blame", &with_unit(found, RANK_COLUMNS));
    let gains = found.analysis.largest_gains(found.costs);
    for timeline in by_cost(found) {
        let times = found.analysis.timeline_times(timeline as usize);
        let cost = found.costs.of_timeline(timeline as usize);
        let gain = gains.iter().find(|(of, _)| *of == timeline).map(|(_, gain)| *gain);
        let process = process_of(found.calls, timeline);
        let first = found.costs.by_label.get(timeline as usize).and_then(|labels| labels.first());
        let time = |ns: u64| Cell::Nanoseconds(i64::try_from(ns).unwrap_or(i64::MAX));
        let row = vec![
            Cell::known(process.and_then(|process| process.rank), |rank| Cell::Count(rank.into())),
            Cell::known(process, |process| Cell::Text(process.host.clone())),
            Cell::known(process.and_then(|process| process.gpu.clone()), Cell::Text),
            unit_cell(found, timeline),
            time(times.work_ns),
            time(times.waited_ns),
            time(times.transfer_ns),
            Cell::Nanoseconds(cost.direct_ns as i64),
            Cell::Nanoseconds(cost.propagated_ns as i64),
            Cell::known(gain, |gain| Cell::Nanoseconds(gain.ns)),
            Cell::known(gain, |gain| Cell::Nanoseconds(gain.error_bound_ns)),
            Cell::known(first, |first| Cell::Text(label_text(found.calls, first.label))),
        ];
        table.push_up_to(max_rows, row);
    }
    table
}

/// Returns all threads, the one that caused the most waiting first.
fn by_cost(found: &AnalysedRun<'_>) -> Vec<u32> {
    let mut timelines: Vec<u32> = (0..found.calls.job.timelines.len() as u32).collect();
    let caused = |timeline: u32| found.costs.of_timeline(timeline as usize).total_ns();
    timelines.sort_by(|one, other| caused(*other).total_cmp(&caused(*one)).then(one.cmp(other)));
    timelines
}

/// Returns the threads that are named; if none is, the one that caused the most waiting.
pub(crate) fn first_causes(found: &AnalysedRun<'_>) -> Vec<u32> {
    match found.diagnosis.findings.first() {
        Some(finding) => finding.subject.timelines().to_vec(),
        None => by_cost(found).into_iter().take(1).collect(),
    }
}

/// Returns columns of which the unit is only for machines, if there are no streams.
fn with_unit<const N: usize>(
    found: &AnalysedRun<'_>,
    mut columns: [(&'static str, &'static str); N],
) -> [(&'static str, &'static str); N] {
    let has_streams = found.calls.job.timelines.iter().any(|timeline| timeline.is_stream);
    for (key, title) in &mut columns {
        if *key == "unit" && !has_streams {
            *title = "";
        }
    }
    columns
}

/// Returns whether a timeline runs on a CPU or a GPU.
fn unit_cell(found: &AnalysedRun<'_>, timeline: u32) -> Cell {
    let is_stream = found.calls.job.timelines.get(timeline as usize).is_some_and(|found| found.is_stream);
    Cell::Text(if is_stream { "GPU" } else { "CPU" }.to_owned())
}

/// Returns the thread of a rank; its first stream, if nothing is recorded of its threads.
///
/// # Errors
/// If no calls of the rank were recorded.
pub(crate) fn timeline_of_rank(found: &AnalysedRun<'_>, rank: u32) -> Result<u32, Failure> {
    // Threads come before streams.
    Ok(timelines_of_rank(found, rank)?[0])
}

/// Returns the threads of a rank and the streams of its GPUs, at least one.
///
/// # Errors
/// If no calls of the rank were recorded.
fn timelines_of_rank(found: &AnalysedRun<'_>, rank: u32) -> Result<Vec<u32>, Failure> {
    let is_of_rank =
        |timeline: &u32| process_of(found.calls, *timeline).and_then(|process| process.rank) == Some(rank);
    let timelines: Vec<u32> = (0..found.calls.job.timelines.len() as u32).filter(is_of_rank).collect();
    match timelines.is_empty() {
        true => Err(Failure::usage(format!(
            "no calls of rank {rank} are analysed: it calls no MPI, launches no RCCL kernels, or is not in this part of the run; \
             check --rank, --ranks, --nodes and --window"
        ))),
        false => Ok(timelines),
    }
}

/// Returns the work of a rank by label beside what is typical, the one with the largest excess first.
///
/// # Errors
/// If no calls of the rank were recorded.
pub(crate) fn label_table(
    found: &AnalysedRun<'_>,
    rank: u32,
    max_rows: usize,
) -> Result<ReportTable, Failure> {
    let of_timeline = |timeline: u32| {
        let work = found.analysis.step_work(timeline).into_iter();
        work.map(move |work| (timeline, work))
    };
    let mut work: Vec<_> = timelines_of_rank(found, rank)?.into_iter().flat_map(of_timeline).collect();
    work.sort_by(|(_, one), (_, other)| other.excess_ns().total_cmp(&one.excess_ns()));
    let mut table = ReportTable::new("blame", &with_unit(found, LABEL_COLUMNS));
    for (timeline, work) in work {
        let costs = found.costs.by_label.get(timeline as usize).into_iter().flatten();
        let cost =
            costs.filter(|cost| cost.label == work.label).map(|cost| cost.cost).next().unwrap_or_default();
        let row = vec![
            Cell::Text(label_text(found.calls, work.label)),
            unit_cell(found, timeline),
            Cell::Nanoseconds(work.step_ns as i64),
            Cell::Nanoseconds(work.typical_ns as i64),
            Cell::Nanoseconds(cost.direct_ns as i64),
            Cell::Nanoseconds(cost.propagated_ns as i64),
        ];
        table.push_up_to(max_rows, row);
    }
    Ok(table)
}
