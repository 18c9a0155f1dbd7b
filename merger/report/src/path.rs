//! The critical path: `rpd-report path`.

use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable};
use crate::waiting::{ListedParts, label_text, missing_reasons, process_of, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;

const COLUMNS: [(&str, &str); 5] = [
    ("rank", "rank"),
    ("host", "host"),
    ("label", "work or call"),
    ("path_ns", "on the path"),
    ("share", "share"),
];

/// Makes the report.
pub(crate) fn report_path(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    with_analysis(run, comm, ListedParts::default(), |found| {
        let path = found.analysis.critical_path();
        let length = found.analysis.replayed_ns().max(1) as f64;
        let mut table = ReportTable::new("path", &COLUMNS);
        for (timeline, label, ns) in &path.by_label {
            let process = process_of(found.calls, *timeline);
            let row = vec![
                Cell::known(process.and_then(|process| process.rank), |rank| Cell::Count(rank.into())),
                Cell::known(process, |process| Cell::Text(process.host.clone())),
                Cell::Text(label_text(found.calls, *label)),
                Cell::Nanoseconds(i64::try_from(*ns).unwrap_or(i64::MAX)),
                Cell::Ratio(*ns as f64 / length),
            ];
            table.push_up_to(max_rows, row);
        }
        let mut notes: Vec<String> = found.reasons.clone();
        notes.push("where several ranks arrive nearly together, the path takes one of them".to_owned());
        let mut unavailable = missing_reasons(found.calls);
        unavailable.extend(table.unknown_values(&[("rank", "the process has no rank")]));
        Ok(Report { subject: "path", run: run.head(), tables: vec![table], notes, unavailable, screen: None })
    })
}
