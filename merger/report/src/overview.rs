//! The report without a subcommand: times by rank and by name.

use crate::input::ReportRun;
use crate::integrity::{incomplete, not_recorded};
use crate::ranks::report_ranks;
use crate::report::{Report, Unavailable};
use crate::summary::{SummaryRows, report_summary};
use rpd_console::Failure;

/// Names of the overview.
const MAX_NAMES: usize = 12;

/// Makes the report.
pub(crate) fn report_overview(run: &ReportRun, max_rows: usize) -> Result<Report, Failure> {
    let ranks = report_ranks(run, max_rows)?;
    let mut report = report_summary(run, SummaryRows::WholeRun, max_rows.min(MAX_NAMES))?;
    report.subject = "overview";
    report.tables.splice(0..0, ranks.tables);
    report.notes.extend(incomplete(run).map(|reason| format!("the run is incomplete: {reason}")));
    report.unavailable.extend(ranks.unavailable);
    report.unavailable.extend(not_recorded(run)?);
    let reason = "this version does not follow waits through messages and collectives";
    report.unavailable.push(Unavailable::new("verdict", reason));
    Ok(report)
}
