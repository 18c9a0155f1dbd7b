//! What the run would gain by typical work: `rpd-report whatif`.

use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable};
use crate::waiting::{AnalysedRun, ListedParts, missing_reasons, no_calls, process_of, with_analysis};
use rpd_calls::CallLabel;
use rpd_comm::Comm;
use rpd_console::Failure;

const COLUMNS: [(&str, &str); 5] = [
    ("what", "with typical work of"),
    ("length_ns", "length"),
    ("gain_ns", "gain"),
    ("gain_error_bound_ns", "+-"),
    ("gain_share", "share"),
];

/// Whose work, and which, would take as long as is typical.
#[derive(Clone, Copy, Debug)]
struct WhatIfSubject<'a> {
    rank: Option<u32>,
    node: Option<&'a str>,
    range: Option<&'a str>,
}

/// Makes the report on the work of a rank or node, in a range.
pub(crate) fn report_what_if(
    run: &ReportRun,
    comm: &dyn Comm,
    (rank, node, range): (Option<u32>, Option<&str>, Option<&str>),
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    let subject = WhatIfSubject { rank, node, range };
    with_analysis(run, comm, ListedParts::default(), |found| {
        if found.calls.job.timelines.is_empty() && subject.is_all() {
            let mut unavailable = missing_reasons(found.calls);
            unavailable.push(no_calls("whatif", found.calls));
            let tables = vec![ReportTable::new("whatif", &COLUMNS)];
            let notes = Vec::new();
            return Ok(Report {
                subject: "whatif",
                run: run.head(),
                tables,
                notes,
                unavailable,
                screen: None,
            });
        }
        let timelines = subject.timelines(found)?;
        let label = subject.label(found)?;
        let gain = found.analysis.gain(&timelines, label);
        let length = found.analysis.replayed_ns();
        let mut table = ReportTable::new("whatif", &COLUMNS);
        let row = vec![
            Cell::Text(subject.name()),
            Cell::Nanoseconds(length.saturating_sub(gain.ns)),
            Cell::Nanoseconds(gain.ns),
            Cell::Nanoseconds(gain.error_bound_ns),
            Cell::Ratio(gain.ns as f64 / length.max(1) as f64),
        ];
        table.push_up_to(max_rows, row);
        let notes = found.reasons.iter();
        let notes = notes.map(|reason| format!("the gain may be wrong: {reason}")).collect();
        let (tables, unavailable) = (vec![table], missing_reasons(found.calls));
        Ok(Report { subject: "whatif", run: run.head(), tables, notes, unavailable, screen: None })
    })
}

impl WhatIfSubject<'_> {
    fn is_all(&self) -> bool {
        self.rank.is_none() && self.node.is_none() && self.range.is_none()
    }

    fn name(&self) -> String {
        let whose = match (&self.rank, &self.node) {
            (Some(rank), _) => format!("rank {rank}"),
            (None, Some(node)) => format!("node {node}"),
            (None, None) => "all ranks".to_owned(),
        };
        let range = self.range.as_ref().map(|range| format!(" in range \"{range}\""));
        whose + range.as_deref().unwrap_or_default()
    }

    fn timelines(&self, found: &AnalysedRun<'_>) -> Result<Vec<u32>, Failure> {
        let is_selected = |timeline: &u32| {
            process_of(found.calls, *timeline).is_some_and(|process| {
                self.rank.is_none_or(|rank| process.rank == Some(rank))
                    && self.node.as_ref().is_none_or(|node| process.host == *node)
            })
        };
        let selected: Vec<u32> = (0..found.calls.job.timelines.len() as u32).filter(is_selected).collect();
        match selected.is_empty() {
            true => Err(Failure::usage("no calls of these ranks were recorded; check --rank and --node")),
            false => Ok(selected),
        }
    }

    fn label(&self, found: &AnalysedRun<'_>) -> Result<Option<u32>, Failure> {
        let Some(range) = &self.range else { return Ok(None) };
        let is_range = |label: &CallLabel| matches!(label, CallLabel::Range(name) if name == range);
        let place = found.calls.labels.iter().position(is_range);
        let number = place.and_then(|place| u32::try_from(place).ok());
        number.map(Some).ok_or_else(|| Failure::usage("no work is in a range of this name; check --range"))
    }
}
