//! Step by step, how long the ranks worked and waited: `rpd-report steps`.

mod lengths;
mod rows;
mod series;

pub(crate) use series::step_series;

use crate::blame::timeline_of_rank;
use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable};
use crate::waiting::{
    AnalysedRun, ListedParts, doubts, label_text, missing_reasons, no_steps, process_of, short, with_analysis,
};
use lengths::{StepFlag, StepLengths};
use rows::{StepRow, TypicalTimes, compared_timelines, step_rows, steps_in_row};
use rpd_calls::{MissingCalls, StepKind};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_console::wording::{counted, grouped};
use rpd_graph::ExcessWork;
use rpd_verdict::shown_time;
use std::collections::HashSet;

/// Why values of a column are not known.
const REASONS: [(&str, &str); 5] = [
    ("range", "the steps have no names that differ"),
    ("slowest_rank", "no rank with a number worked longer than is typical"),
    ("label", "no work took longer than is typical"),
    ("label_ns", "no work took longer than is typical"),
    ("typical_label_ns", "no work took longer than is typical"),
];

/// Makes the report of all ranks, or of one beside what is typical.
pub(crate) fn report_steps(
    run: &ReportRun,
    comm: &dyn Comm,
    rank: Option<u32>,
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    with_analysis(run, comm, ListedParts::default(), |found| {
        let selected: Vec<u32> = match rank {
            Some(rank) => vec![timeline_of_rank(found, rank)?],
            None => {
                let compared = compared_timelines(&found.calls.job).into_iter();
                compared.filter(|timeline| is_selected(run, found, *timeline)).collect()
            }
        };
        let in_row = steps_in_row(found.calls.job.timelines.len(), found.calls.job.steps);
        let (rows, lengths) =
            step_rows(found.analysis, &found.calls.job, (&selected, rank.is_some()), in_row);
        let excess = found.analysis.longest_work(&with_streams(found, &selected), in_row);
        let (origin, _) = run.extent.unwrap_or_default();
        let mut table = ReportTable::new("steps", &columns(rank.is_some(), in_row > 1));
        let kept = kept_rows(&rows, &lengths, max_rows);
        for (row, excess) in
            rows.iter().zip(&excess).zip(&kept).filter(|(_, kept)| **kept).map(|(row, _)| row)
        {
            let mut cells = place_cells(run, found, row, origin);
            cells.extend(match &row.typical {
                Some(typical) => rank_cells(row, typical),
                None => sum_cells(found, row, excess.as_ref()),
            });
            cells.extend(label_cells(found, excess.as_ref()));
            cells.push(flag_cell(&lengths, row));
            table.push_up_to(max_rows, cells);
        }
        table.omitted = kept.iter().filter(|kept| !**kept).count() as u64;
        let mut unavailable = missing_reasons(found.calls);
        unavailable.extend(table.unknown_values(&REASONS));
        if rows.is_empty() && !unavailable.iter().any(|missing| missing.subject == "steps") {
            unavailable.push(no_steps(found.calls));
        }
        let notes = notes(found, &table, in_row);
        let job = &found.calls.job;
        let span = |timeline: &u32| job.timelines.get(*timeline as usize).map(|of| (of.start_ns, of.end_ns));
        let spans = || selected.iter().filter_map(span);
        let span = spans().map(|span| span.0).min().zip(spans().map(|span| span.1).max());
        let head = run.head_with(span);
        Ok(Report { subject: "steps", run: head, tables: vec![table], notes, unavailable, screen: None })
    })
}

/// Describes how the steps were found.
pub(crate) fn steps_text(found: &AnalysedRun<'_>) -> String {
    let Some(steps) = &found.calls.steps else {
        if found.calls.unavailable.contains(&MissingCalls::NoMpiCalls) {
            return "none found: they are found in ranks with calls to MPI or RCCL".to_owned();
        }
        return "none found; mark them with ranges, or name ranges of the run with --step NAME".to_owned();
    };
    let count = counted(steps.count.into(), "step");
    let length = shown_time(mean_length_ns(found, steps.count));
    match steps.kind {
        StepKind::Marker => {
            format!("{count} of {length} on average, marked by range \"{}\"", short(&steps.name))
        }
        StepKind::Repetition => {
            format!("{count} of {length} on average, found by repetition of {}", short(&steps.name))
        }
        StepKind::Windows { ns } => {
            let length = shown_time(i64::try_from(ns).unwrap_or(i64::MAX));
            format!("none found; {} of {length} are compared instead", counted(steps.count.into(), "window"))
        }
    }
}

/// Returns the mean length of a step of a thread, ns.
fn mean_length_ns(found: &AnalysedRun<'_>, steps: u32) -> i64 {
    let job = &found.calls.job;
    let has_steps = |timeline: &u32| !job.timelines[*timeline as usize].first_call_of_step.is_empty();
    let compared = compared_timelines(job).into_iter().filter(has_steps);
    let lengths: Vec<u128> = compared
        .map(|timeline| u128::from(found.analysis.times_in_steps(timeline as usize, 0..steps).length_ns))
        .collect();
    let count = lengths.len() as u128 * u128::from(steps);
    i64::try_from(lengths.iter().sum::<u128>() / count.max(1)).unwrap_or(i64::MAX)
}

/// Adds the streams of the processes of these timelines.
fn with_streams(found: &AnalysedRun<'_>, selected: &[u32]) -> Vec<u32> {
    let timelines = &found.calls.job.timelines;
    let process = |timeline: &u32| timelines.get(*timeline as usize).map(|timeline| timeline.process);
    let processes: HashSet<u32> = selected.iter().filter_map(process).collect();
    let is_stream = |timeline: &u32| timelines[*timeline as usize].is_stream;
    let streams = (0..timelines.len() as u32)
        .filter(|timeline| is_stream(timeline) && processes.contains(&timelines[*timeline as usize].process));
    let threads = selected.iter().copied().filter(|timeline| !is_stream(timeline));
    threads.chain(streams).collect()
}

fn is_selected(run: &ReportRun, found: &AnalysedRun<'_>, timeline: u32) -> bool {
    process_of(found.calls, timeline)
        .is_some_and(|process| run.selection.contains(process.run_process as u32))
}

/// Returns the columns with their titles. Columns without a title are for machines.
fn columns(is_of_rank: bool, has_blocks: bool) -> Vec<(&'static str, &'static str)> {
    let title = |title: &'static str| if has_blocks { title } else { "" };
    let mut columns = vec![
        ("step", "step"),
        ("steps", title("steps")),
        ("range", "range"),
        ("start_ns", ""),
        ("at_ns", "at"),
    ];
    columns.extend([
        ("length_ns", "length"),
        ("shortest_ns", title("shortest")),
        ("longest_ns", title("longest")),
        ("longest_step", title("in step")),
    ]);
    columns.extend(match is_of_rank {
        true => [
            ("typical_length_ns", "typical"),
            ("work_ns", "work"),
            ("typical_work_ns", "typical"),
            ("waited_ns", "waits"),
            ("typical_waited_ns", "typical"),
            ("communication_ns", "communicates"),
            ("typical_communication_ns", "typical"),
        ]
        .to_vec(),
        false => vec![
            ("work_ns", ""),
            ("waited_ns", "waiting"),
            ("communication_ns", "communication"),
            ("slowest_rank", "slowest rank"),
        ],
    });
    columns.extend([
        ("excess_ns", "longer by"),
        ("label", "most by"),
        ("label_ns", "for"),
        ("typical_label_ns", "typically"),
        ("flags", "flags"),
    ]);
    columns
}

/// Chooses the rows that are listed: of too many, those with a flag, then the longest.
fn kept_rows(rows: &[StepRow], lengths: &StepLengths, max_rows: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if rows.len() > max_rows {
        let rank = |place: &usize| {
            let row = &rows[*place];
            (lengths.flags(row.steps.clone()).is_empty(), std::cmp::Reverse(row.longest_ns), *place)
        };
        order.sort_by_key(rank);
        order.truncate(max_rows);
    }
    let mut kept = vec![false; rows.len()];
    order.into_iter().for_each(|place| kept[place] = true);
    kept
}

fn time(ns: u64) -> Cell {
    Cell::sum(ns.into())
}

fn place_cells(run: &ReportRun, found: &AnalysedRun<'_>, row: &StepRow, origin: i64) -> Vec<Cell> {
    let names = found.calls.steps.as_ref().map(|steps| &steps.range_names);
    let name = names.and_then(|names| names.get(row.steps.start as usize));
    let name =
        name.map(|place| String::from_utf8_lossy(run.database.strings.at(*place as usize)).into_owned());
    vec![
        Cell::Count(row.steps.start.into()),
        Cell::Count(row.steps.len() as u64),
        Cell::known(name, Cell::Text),
        Cell::Nanoseconds(row.start_ns),
        Cell::Nanoseconds(row.start_ns.saturating_sub(origin)),
        time(row.length_ns),
        time(row.shortest_ns),
        time(row.longest_ns),
        Cell::Count(row.longest_step.into()),
    ]
}

fn sum_cells(found: &AnalysedRun<'_>, row: &StepRow, excess: Option<&ExcessWork>) -> Vec<Cell> {
    let slowest = excess.and_then(|excess| process_of(found.calls, excess.timeline)?.rank);
    vec![
        time(row.work_ns),
        time(row.waited_ns),
        time(row.communication_ns),
        Cell::known(slowest, |rank| Cell::Count(rank.into())),
    ]
}

fn rank_cells(row: &StepRow, typical: &TypicalTimes) -> Vec<Cell> {
    vec![
        time(typical.length_ns),
        time(row.work_ns),
        time(typical.work_ns),
        time(row.waited_ns),
        time(typical.waited_ns),
        time(row.communication_ns),
        time(typical.communication_ns),
    ]
}

fn label_cells(found: &AnalysedRun<'_>, excess: Option<&ExcessWork>) -> Vec<Cell> {
    let label = excess.map(|excess| label_text(found.calls, excess.label));
    vec![
        Cell::Nanoseconds(excess.map_or(0, |excess| excess.excess_ns)),
        Cell::known(label, Cell::Text),
        Cell::known(excess, |excess| time(excess.label_ns)),
        Cell::known(excess, |excess| time(excess.typical_ns)),
    ]
}

fn flag_cell(lengths: &StepLengths, row: &StepRow) -> Cell {
    let flags = lengths.flags(row.steps.clone());
    Cell::Texts(flags.into_iter().map(StepFlag::name).map(str::to_owned).collect())
}

fn notes(found: &AnalysedRun<'_>, table: &ReportTable, in_row: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if found.calls.steps.is_some() {
        notes.push(steps_text(found));
    }
    if in_row > 1 {
        let steps = counted(in_row.into(), "step");
        notes.push(format!("a row has the sums of {steps}, and the shortest and the longest of them"));
    }
    if table.omitted > 0 {
        let kept = grouped(table.rows.len() as u64);
        notes.push(format!("the rows are the {kept} longest, in the order of time"));
    }
    notes.extend(doubts(found));
    notes
}
