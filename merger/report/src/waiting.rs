//! The analysis of waiting for the selected part of a run: which rank the others wait for.

pub(crate) use rpd_verdict::{
    AnalysedRun, doubts, label_text, only_rank_of, process_of, ranks_of, short, verdict_lines,
};

use crate::input::ReportRun;
use crate::recording::how_to_record;
use crate::report::Unavailable;
use rpd_calls::{CallFile, MissingCalls, ReadOptions, RunCalls};
use rpd_comm::{Comm, agree_on_result, broadcast_result};
use rpd_console::Failure;
use rpd_console::wording::one_line;
use rpd_graph::CallTimeline;
use rpd_verdict::{AnalysisOptions, missing_reason};

/// Why no rank is named if processes are left out, and the way out.
const LEFT_OUT: &str =
    "--ranks or --nodes leave out processes that the others may wait for; omit these options";

/// Parts of a run that a report lists beside times and verdicts. Other parts are released.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListedParts {
    /// Rows of calls, by their keys.
    pub(crate) row_keys: bool,
    /// Messages.
    pub(crate) messages: bool,
    /// Durations of all calls.
    pub(crate) durations: bool,
}

/// Bytes for each end of a message that is listed: that of the end, its match, and its place in a table.
const LISTED_END_BYTES: u64 = 64;
/// Bytes for each duration that is compared: in a list that grows, with its copy while it does.
const DURATION_BYTES: u64 = 24;

impl ListedParts {
    /// Returns about how many bytes they take, at most.
    fn bytes(self, calls: &RunCalls) -> u64 {
        let timelines = &calls.job.timelines;
        let sum = |of: fn(&CallTimeline) -> usize| timelines.iter().map(of).sum::<usize>() as u64;
        let ends = if self.messages { sum(|timeline| timeline.message_ends.len()) } else { 0 };
        let durations =
            if self.durations { sum(|timeline| timeline.calls.len() + timeline.work.len()) } else { 0 };
        ends * LISTED_END_BYTES + durations * DURATION_BYTES
    }
}

/// Reads the calls of the run. Analyses them on rank 0, and passes the result on there; returns `None` on other ranks.
pub(crate) fn with_analysis<T>(
    run: &ReportRun,
    comm: &dyn Comm,
    listed: ListedParts,
    use_it: impl FnOnce(&AnalysedRun<'_>) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let selection = &run.selection;
    let options = ReadOptions {
        step: selection.step.clone(),
        window_ns: selection.window_ns(),
        keeps_row_keys: listed.row_keys,
        memory: Some(run.analysis_memory),
    };
    let mut calls = None;
    let are_stored = broadcast_result(comm, || {
        calls = if options.is_whole_run() { stored_calls(run) } else { None };
        Ok(calls.is_some())
    })?;
    if !are_stored {
        calls = RunCalls::gather(&run.database, comm, &options)?;
    }
    // Only rank 0 has calls. The other ranks learn whether it could report on them.
    agree_on_result(comm, calls.map(|calls| analysed(run, calls, listed, use_it)).transpose())
}

fn analysed<T>(
    run: &ReportRun,
    calls: RunCalls,
    listed: ListedParts,
    use_it: impl FnOnce(&AnalysedRun<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    calls.check_memory(run.analysis_memory, listed.bytes(&calls))?;
    let selection = &run.selection;
    if let Some(step) = selection.step.as_deref().filter(|_| lacks_named_steps(&calls)) {
        let name = one_line(step);
        return Err(Failure::usage(format!("no ranges named {name} mark steps of all ranks; check --step")));
    }
    let options = AnalysisOptions {
        left_out: selection.is_restricted().then_some(LEFT_OUT),
        keeps_messages: listed.messages,
    };
    options.analyse(calls, use_it)
}

/// Returns whether no ranges of the run mark steps. A window may have none although the run has some.
fn lacks_named_steps(calls: &RunCalls) -> bool {
    calls.steps.is_none() && calls.job.processes > 0 && !calls.job.is_part
}

/// Reads the calls of the whole run from their file beside the database, if there is one that fits.
fn stored_calls(run: &ReportRun) -> Option<RunCalls> {
    let database = &run.database;
    let place = CallFile::place(database.tables.database()?.path());
    let is_whole = database.processes.iter().all(|process| process.is_selected);
    let file = CallFile::open(&place, database).transpose().filter(|_| is_whole)?;
    match file.and_then(|file| RunCalls::from_file(database, &file)) {
        Ok(calls) => Some(calls),
        Err(error) => {
            if !run.is_quiet {
                let place = place.display();
                let note = format!("{place} is not used, which only takes longer: {error}");
                eprintln!("note: {}", one_line(&note));
            }
            None
        }
    }
}

/// Describes that there are no calls for a subject of a report.
pub(crate) fn no_calls(subject: &'static str, calls: &RunCalls) -> Unavailable {
    unavailable_for(subject, &MissingCalls::NoMpiCalls, calls)
}

/// Describes that there are no steps.
pub(crate) fn no_steps(calls: &RunCalls) -> Unavailable {
    unavailable_for("steps", &MissingCalls::NoSteps, calls)
}

/// Describes what is missing in the calls.
pub(crate) fn missing_reasons(calls: &RunCalls) -> Vec<Unavailable> {
    let subject = |missing: &MissingCalls| match missing {
        MissingCalls::NoSteps => "steps",
        _ => "waiting",
    };
    calls.unavailable.iter().map(|missing| unavailable_for(subject(missing), missing, calls)).collect()
}

fn unavailable_for(subject: &'static str, missing: &MissingCalls, calls: &RunCalls) -> Unavailable {
    let is_part = calls.job.is_part;
    Unavailable::new(subject, missing_reason(missing, is_part)).recorded_by(how_to_record(missing, is_part))
}
