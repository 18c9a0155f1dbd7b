//! The report without a subcommand: which rank the others wait for, what that costs, and what cannot be told.

use crate::clocks::ClockBounds;
use crate::evidence::{EVIDENCE_TABLES, wait_evidence};
use crate::input::ReportRun;
use crate::integrity::{failed_ranks, has_differing_collectives, incomplete, not_recorded};
use crate::ranks::rank_report;
use crate::report::{NextCommand, Report, Unavailable, VerdictScreen};
use crate::rows::TimedRows;
use crate::steps::steps_text;
use crate::waiting::{AnalysedRun, ListedParts, missing_reasons, only_rank_of, verdict_lines, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_graph::{JobVerdict, StepPattern};
use rpd_shard::model::rocpd;
use rpd_shard::shell_words::input_words;
use std::collections::BTreeSet;

/// Maximum number of commands that continue from the verdict.
const MAX_NEXT: usize = 4;

/// Purpose of the command with `--explain`.
const EXPLAINING: &str = "the calls that show it";

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
        let mut screen = verdict_screen(run, found);
        if let Some(max_listed) = explained {
            screen.tables.extend(EVIDENCE_TABLES);
            explain(run, found, max_listed, &mut report)?;
            screen.next.retain(|next| next.purpose != EXPLAINING);
        }
        report.screen = Some(screen);
        Ok(report)
    })
}

/// Words the verdict on a run, with the commands that continue from there.
pub(crate) fn verdict_screen(run: &ReportRun, found: &AnalysedRun<'_>) -> VerdictScreen {
    let verdict = verdict_lines(found);
    let mut lines = verdict.lines;
    lines.push(("steps", steps_text(found)));
    let missing = incomplete(run).unwrap_or_else(|| "nothing is missing".to_owned());
    let failed = failed_ranks(run).map_or(String::new(), |failed| format!("; {failed}"));
    let faults = match has_differing_collectives(run) {
        true => "; collectives differ between ranks (rpd-report integrity)",
        false => "",
    };
    lines.push(("complete", missing + &failed + faults));
    lines.push(("clocks", ClockBounds::of(run).describe()));
    VerdictScreen { lines, next: next_commands(run, found), tables: Vec::new(), json: verdict.json }
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
    // Other ranks wait for the stream that communicates, which waits for the one that is slow.
    let jobs = &found.calls.job.timelines;
    let processes: BTreeSet<u32> =
        finding.subject.timelines().iter().map(|timeline| jobs[*timeline as usize].process).collect();
    let causes: Vec<u32> = (0u32..)
        .zip(jobs)
        .filter(|(_, timeline)| processes.contains(&timeline.process))
        .map(|(number, _)| number)
        .collect();
    let evidence = wait_evidence(run, found, &causes, max_listed)?;
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
            (EXPLAINING, "--explain".to_owned()),
            if rank.is_some() {
                ("all ranks", "blame".to_owned())
            } else {
                ("each step", "steps".to_owned())
            },
        ],
        (true, None) => {
            let more = match found.diagnosis.verdict {
                JobVerdict::NoSingleCause => ("single long events", "anomalies".to_owned()),
                _ => ("times by name", "summary".to_owned()),
            };
            vec![("each rank", "blame --explain".to_owned()), path, more]
        }
        (false, _) => vec![
            ("times by name", "summary".to_owned()),
            ("each rank", "ranks".to_owned()),
            ("what is missing", "integrity".to_owned()),
        ],
    };
    if run.database.units.iter().any(|unit| unit.has_rows(rocpd::KERNEL_DISPATCH)) {
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
