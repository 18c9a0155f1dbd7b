//! The report without a subcommand: which rank the others wait for, what that costs, and what cannot be told.

use crate::clocks::ClockBounds;
use crate::input::ReportRun;
use crate::integrity::{incomplete, not_recorded};
use crate::ranks::report_ranks;
use crate::report::{Report, Unavailable, VerdictScreen};
use crate::waiting::{AnalysedRun, missing_reasons, verdict_lines, with_analysis};
use rpd_calls::StepKind;
use rpd_console::Failure;
use rpd_console::wording::{counted, duration};

/// Maximum number of reasons why something is unavailable that the first screen shows.
const MAX_UNAVAILABLE: usize = 5;

/// Makes the report.
pub(crate) fn report_overview(run: &ReportRun, max_rows: usize) -> Result<Report, Failure> {
    let mut report = report_ranks(run, max_rows)?;
    report.subject = "overview";
    report.unavailable.extend(not_recorded(run)?);
    with_analysis(run, |found| {
        report.unavailable.extend(missing_reasons(found.calls));
        let verdict = verdict_lines(found);
        let mut lines = verdict.lines;
        lines.push(("steps", steps_text(found)));
        lines.push(("complete", incomplete(run).unwrap_or_else(|| "nothing is missing".to_owned())));
        let bound = ClockBounds::of(run).largest();
        let clocks = bound.map_or("their errors are not known".to_owned(), |ns| {
            format!("error bound {} at most", duration(ns))
        });
        lines.push(("clocks", clocks));
        lines.extend(unavailable_lines(&report.unavailable));
        lines.push(("next", next_commands().to_owned()));
        report.screen = Some(VerdictScreen { lines, json: verdict.json });
        Ok(report)
    })
}

fn steps_text(found: &AnalysedRun<'_>) -> String {
    let Some(steps) = &found.calls.steps else {
        return "none found; mark them with ranges, or name ranges of the run with --step NAME".to_owned();
    };
    let count = counted(steps.count.into(), "step");
    let length = duration(found.analysis.replayed_ns() / i64::from(steps.count.max(1)));
    match steps.kind {
        StepKind::Marker => format!("{count} of {length} on average, marked by range \"{}\"", steps.name),
        StepKind::Repetition => {
            format!("{count} of {length} on average, found by repetition of {}", steps.name)
        }
        StepKind::Windows => format!("{} of 1 s instead of steps", counted(steps.count.into(), "window")),
    }
}

fn unavailable_lines(unavailable: &[Unavailable]) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&'static str, String)> = unavailable
        .iter()
        .take(MAX_UNAVAILABLE)
        .map(|missing| ("unavailable", format!("{}: {}", missing.subject, missing.reason)))
        .collect();
    let more = unavailable.len().saturating_sub(MAX_UNAVAILABLE);
    if more > 0 {
        lines.push(("unavailable", format!("{} more: --format json", more)));
    }
    lines
}

/// Names the next commands.
fn next_commands() -> &'static str {
    "rpd-report blame RUN (each rank), rpd-report path RUN (critical path), rpd-report summary RUN (times by name)"
}
