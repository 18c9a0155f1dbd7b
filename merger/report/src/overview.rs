//! The report without a subcommand: which rank the others wait for, what that costs, and what cannot be told.

use crate::clocks::ClockBounds;
use crate::evidence::{EVIDENCE_TABLES, wait_evidence};
use crate::input::ReportRun;
use crate::integrity::{incomplete, not_recorded};
use crate::ranks::rank_report;
use crate::report::{NextCommand, Report, Unavailable, VerdictScreen};
use crate::rows::TimedRows;
use crate::steps::steps_text;
use crate::waiting::{AnalysedRun, ListedParts, missing_reasons, only_rank_of, verdict_lines, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_graph::StepPattern;
use rpd_shard::shell_words::input_words;

/// Maximum number of commands that continue from the verdict.
const MAX_NEXT: usize = 4;

/// Makes the report. `explained` is the maximum number of calls that are listed as evidence.
pub(crate) fn report_overview(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
    explained: Option<usize>,
) -> Result<Option<Report>, Failure> {
    let rows = TimedRows::new(run);
    let mut report = rank_report(&rows, comm, max_rows)?;
    report.subject = "overview";
    report.unavailable.extend(not_recorded(&rows));
    drop(rows);
    let listed = ListedParts { row_keys: explained.is_some(), ..ListedParts::default() };
    with_analysis(run, comm, listed, |found| {
        report.unavailable.extend(missing_reasons(found.calls));
        let verdict = verdict_lines(found);
        let mut lines = verdict.lines;
        lines.push(("steps", steps_text(found)));
        lines.push(("complete", incomplete(run).unwrap_or_else(|| "nothing is missing".to_owned())));
        lines.push(("clocks", ClockBounds::of(run).describe()));
        let mut tables = Vec::new();
        if let Some(max_listed) = explained {
            tables.extend(EVIDENCE_TABLES);
            explain(run, found, max_listed, &mut report)?;
        }
        let next = next_commands(run, found);
        report.screen = Some(VerdictScreen { lines, next, tables, json: verdict.json });
        Ok(report)
    })
}

/// Adds the calls that show the findings.
fn explain(
    run: &ReportRun,
    found: &AnalysedRun<'_>,
    max_listed: usize,
    report: &mut Report,
) -> Result<(), Failure> {
    let Some(finding) = found.diagnosis.findings.first() else {
        let reason = "no rank is named; blame --explain lists the waits for the rank that caused most";
        report.unavailable.insert(0, Unavailable::new("explain", reason));
        return Ok(());
    };
    let evidence = wait_evidence(run, found, finding.subject.timelines(), max_listed)?;
    report.tables.extend(evidence.tables);
    report.notes.extend(evidence.notes);
    report.unavailable.extend(evidence.unavailable);
    Ok(())
}

/// Names the commands that continue from the verdict, for the same part of the same run.
fn next_commands(run: &ReportRun, found: &AnalysedRun<'_>) -> Vec<NextCommand> {
    let is_analysed = !found.calls.job.timelines.is_empty() && !found.leaves_out_ranks;
    let finding = found.diagnosis.findings.first();
    let rank = finding.and_then(|finding| only_rank_of(found.calls, &finding.subject));
    let of_rank = |subject: &str| match rank {
        Some(rank) => format!("{subject} --rank {rank}"),
        None => subject.to_owned(),
    };
    let path = ("critical path", "path".to_owned());
    let mut commands = match (is_analysed, finding) {
        (true, Some(finding)) => vec![
            if rank.is_some() { ("what is slow", of_rank("blame")) } else { ("each rank", of_rank("blame")) },
            match finding.pattern {
                StepPattern::Steady => path,
                _ => ("in which steps", of_rank("steps")),
            },
            ("the calls that show it", "--explain".to_owned()),
            if rank.is_some() {
                ("all ranks", "blame".to_owned())
            } else {
                ("each step", "steps".to_owned())
            },
        ],
        (true, None) => {
            vec![("each rank", "blame --explain".to_owned()), path, ("times by name", "summary".to_owned())]
        }
        (false, _) => vec![
            ("times by name", "summary".to_owned()),
            ("each rank", "ranks".to_owned()),
            ("what is missing", "integrity".to_owned()),
        ],
    };
    if found.calls.job.timelines.iter().any(|timeline| timeline.is_stream) {
        commands.truncate(MAX_NEXT - 1);
        commands.push(("GPUs", "gpu".to_owned()));
    }
    if !found.open_calls.is_empty() {
        commands.truncate(MAX_NEXT - 1);
        let place = if found.hang.is_some() { 0 } else { commands.len() };
        commands.insert(place, ("calls that did not return", "hang".to_owned()));
    }
    let inputs = input_words(&run.inputs);
    let next = commands.into_iter().map(|(purpose, command)| NextCommand {
        purpose,
        command: format!("rpd-report {command}"),
        selection: run.selection_words.clone(),
        inputs: inputs.clone(),
    });
    next.collect()
}
