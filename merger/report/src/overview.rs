//! The report without a subcommand: which rank the others wait for, what that costs, and what cannot be told.

use crate::clocks::ClockBounds;
use crate::input::ReportRun;
use crate::integrity::{incomplete, not_recorded};
use crate::ranks::report_ranks;
use crate::report::{NextCommand, Report, VerdictScreen};
use crate::waiting::{AnalysedRun, missing_reasons, only_rank_of, short, verdict_lines, with_analysis};
use rpd_calls::StepKind;
use rpd_console::Failure;
use rpd_console::wording::counted;
use rpd_shard::shell_words::{input_words, shell_word};
use rpd_verdict::shown_time;

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
            format!("error bound {} at most", shown_time(ns))
        });
        lines.push(("clocks", clocks));
        report.screen = Some(VerdictScreen { lines, next: next_commands(run, found), json: verdict.json });
        Ok(report)
    })
}

fn steps_text(found: &AnalysedRun<'_>) -> String {
    let Some(steps) = &found.calls.steps else {
        return "none found; mark them with ranges, or name ranges of the run with --step NAME".to_owned();
    };
    let count = counted(steps.count.into(), "step");
    let length = shown_time(found.analysis.replayed_ns() / i64::from(steps.count.max(1)));
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

/// Names the commands that continue from the verdict, for the same run.
fn next_commands(run: &ReportRun, found: &AnalysedRun<'_>) -> Vec<NextCommand> {
    let is_analysed = !found.calls.job.timelines.is_empty() && !found.leaves_out_ranks;
    let subject = found.diagnosis.findings.first().map(|finding| &finding.subject);
    let rank = subject.and_then(|subject| only_rank_of(found.calls, subject));
    let commands = match (is_analysed, rank) {
        (true, Some(rank)) => [
            ("what is slow", format!("blame --rank {rank}")),
            ("critical path", "path".to_owned()),
            ("all ranks", "blame".to_owned()),
        ],
        (true, None) => [
            ("each rank", "blame".to_owned()),
            ("critical path", "path".to_owned()),
            ("times by name", "summary".to_owned()),
        ],
        (false, _) => [
            ("times by name", "summary".to_owned()),
            ("each rank", "ranks".to_owned()),
            ("what is missing", "integrity".to_owned()),
        ],
    };
    let step = run.selection.step.as_deref().and_then(shell_word);
    let step = step.map_or(String::new(), |step| format!(" --step {step}"));
    let inputs = input_words(&run.inputs);
    let next = commands.into_iter().map(|(purpose, command)| NextCommand {
        purpose,
        command: format!("rpd-report {command}{step}"),
        inputs: inputs.clone(),
    });
    next.collect()
}
