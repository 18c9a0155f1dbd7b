//! Single events that take much longer than others of their kind: `rpd-report anomalies`.

use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::waiting::{ListedParts, label_text, missing_reasons, no_calls, process_of, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_console::wording::grouped;

const COLUMNS: [(&str, &str); 11] = [
    ("kind", "anomaly"),
    ("label", "in"),
    ("step", "step"),
    ("rank", "rank"),
    ("host", "host"),
    ("start_ns", ""),
    ("at_ns", "at"),
    ("longest_ns", "longest"),
    ("typical_ns", "typical"),
    ("score", "score"),
    ("events", "events"),
];

/// Why values of a column are not known.
const REASONS: [(&str, &str); 4] = [
    ("label", "steps and ranks have none"),
    ("step", "these events are in no step"),
    ("rank", "the process has no rank"),
    ("score", "at least half of the events of this kind take equally long"),
];

/// Makes the report.
pub(crate) fn report_anomalies(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    let listed = ListedParts { durations: true, ..ListedParts::default() };
    with_analysis(run, comm, listed, |found| {
        let (origin, _) = run.extent.unwrap_or_default();
        let mut table = ReportTable::new("anomalies", &COLUMNS);
        for anomaly in found.analysis.anomalies() {
            let process = process_of(found.calls, anomaly.timeline);
            if !process.is_some_and(|process| run.selection.contains(process.run_process as u32)) {
                continue;
            }
            let time = |ns: u64| Cell::sum(ns.into());
            let row = vec![
                Cell::Text(anomaly.kind.name().to_owned()),
                Cell::known(anomaly.label, |label| Cell::Text(label_text(found.calls, Some(label)))),
                Cell::known(anomaly.step, |step| Cell::Count(step.into())),
                Cell::known(process.and_then(|process| process.rank), |rank| Cell::Count(rank.into())),
                Cell::known(process, |process| Cell::Text(process.host.clone())),
                Cell::Nanoseconds(anomaly.start_ns),
                Cell::Nanoseconds(anomaly.start_ns.saturating_sub(origin)),
                time(anomaly.ns),
                time(anomaly.typical_ns),
                Cell::known(anomaly.score, |score| Cell::Count(score.round() as u64)),
                Cell::Count(anomaly.events),
            ];
            table.push_up_to(max_rows, row);
        }
        let mut unavailable = missing_reasons(found.calls);
        unavailable.extend(table.unknown_values(&REASONS));
        let mut notes = Vec::new();
        if found.calls.job.timelines.is_empty() {
            unavailable.push(no_calls("anomalies", found.calls));
        } else if found.calls.steps.is_none() {
            unavailable.push(Unavailable::new(
                "anomalies",
                "without steps, events are compared with all others of their kind",
            ));
        }
        if table.rows.is_empty() && !found.calls.job.timelines.is_empty() {
            notes.push("no event takes much longer than others of its kind".to_owned());
        } else if table.omitted > 0 {
            let more = match table.omitted {
                1 => "1 further anomaly is".to_owned(),
                several => format!("{} further anomalies are", grouped(several)),
            };
            notes.push(format!("{more} closer to what is typical"));
        }
        Ok(Report {
            subject: "anomalies",
            run: run.head(),
            tables: vec![table],
            notes,
            unavailable,
            screen: None,
        })
    })
}
