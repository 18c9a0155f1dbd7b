//! The merge in five phases: plan, survey, agree, write, seal.
//!
//! In this module a rank is a merge rank. Every rank calls every function here in the same order. These functions make
//! collective calls on the main thread.

mod agree;
mod analyse;
mod job;
mod observe;
mod seal;
mod survey;
mod write;

pub(crate) use job::MergeJob;
pub use observe::{JobObservations, job_observations};

use crate::input::listing::TranslatedFolder;
use crate::input::plan::{ExcludedInputs, MergePlan, plan};
use crate::options::{LateChoice, MergeArgs, OutputFormat};
use crate::output::counts::row_counts;
use crate::output::planned_size::{PlannedRows, planned_bytes, with_converted};
use crate::output::verify::verify_published;
use crate::partial_output::PartialOutput;
use crate::summary::MergeReport;
use crate::summary::clock_plot::plot;
pub(crate) use agree::JobAgreement;
use agree::agree;
use job::translate_foreign;
use rpd_comm::{Comm, agree_on_result, broadcast_result, shared_failure};
use rpd_console::{Failure, Progress};
use seal::seal;
use std::time::Instant;
pub(crate) use survey::SurveyedInputs;
use survey::survey_inputs;
pub(crate) use write::row_maker;
use write::write;

/// Merges the inputs into one database. Every rank calls this. Every rank gets the same report, except for
/// measurements that only rank 0 makes.
///
/// # Errors
/// If an option, an input or the output cannot be used. A failed merge removes its file.
pub fn merge(comm: &impl Comm, args: &MergeArgs) -> Result<MergeReport, Failure> {
    let begun = Instant::now();
    let mut progress = Progress::new(comm.rank() == 0 && !args.quiet);
    progress.phase("plan");
    let mut job = broadcast_result(comm, || MergeJob::list(args))?;
    let mut output = if args.dry_run { None } else { Some(begin_output(comm, args, &job)?) };
    let mut report = merge_job(comm, args, &mut job, output.as_ref(), &mut progress)?;
    if let Some(output) = &mut output {
        publish(comm, args, &job, output, &report)?;
    }
    report.phases = progress.finish();
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Merges listed inputs into a temporary file. If inputs vanish during the merge, it restarts without them.
///
/// # Errors
/// As [`merge`].
pub(crate) fn merge_job(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &mut MergeJob,
    output: Option<&PartialOutput>,
    progress: &mut Progress,
) -> Result<MergeReport, Failure> {
    let _translated = begin_job(comm, job, comm.size())?;
    let job = &*job;
    with_restarts(comm, |excluded| run_phases(comm, args, job, excluded, output, progress))
}

/// A merge of which the ranks have agreed on all ids and times, and nothing is written.
pub(crate) struct AgreedMerge {
    pub(crate) plan: MergePlan,
    pub(crate) inputs: SurveyedInputs,
    pub(crate) agreed: JobAgreement,
    /// Report of the merge, without what only writing counts.
    pub(crate) report: MergeReport,
    /// Folder of translated inputs.
    _translated: Option<TranslatedFolder>,
}

/// Runs the first three phases of a merge of listed inputs, which the first `readers` merge ranks read. If inputs vanish
/// meanwhile, it restarts without them.
///
/// # Errors
/// As [`merge`].
pub(crate) fn agree_on_job(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &mut MergeJob,
    readers: usize,
    progress: &mut Progress,
) -> Result<AgreedMerge, Failure> {
    let translated = begin_job(comm, job, readers)?;
    let job = &*job;
    let agreed = with_restarts(comm, |excluded| {
        let plan = plan_phase(comm, args, job, excluded, None, progress)?;
        let plan = plan.with_readers(readers, comm.size());
        let (inputs, agreed) = agree_on_rows(comm, args, job, &plan, progress)?;
        let report = first_report(args, &plan, &inputs, &agreed);
        print_warnings(comm, args, excluded, &report)?;
        Ok(AgreedMerge { plan, inputs, agreed, report, _translated: None })
    })?;
    Ok(AgreedMerge { _translated: translated, ..agreed })
}

/// Opens the folders of the inputs, and lets the first `readers` ranks translate foreign files.
fn begin_job(
    comm: &impl Comm,
    job: &mut MergeJob,
    readers: usize,
) -> Result<Option<TranslatedFolder>, Failure> {
    job.hold_folders();
    translate_foreign(comm, job, readers)
}

/// Repeats an attempt without the inputs that vanished in it.
fn with_restarts<T>(
    comm: &impl Comm,
    mut attempt: impl FnMut(&mut ExcludedInputs) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut excluded = ExcludedInputs::default();
    loop {
        match attempt(&mut excluded) {
            Err(failure) if failure.is_shared() => {
                // Any other failure ends the merge here.
                let vanished = failure.into_vanished_inputs()?;
                broadcast_result(comm, || excluded.add(vanished))?;
            }
            ended => return ended,
        }
    }
}

fn run_phases(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &MergeJob,
    excluded: &mut ExcludedInputs,
    output: Option<&PartialOutput>,
    progress: &mut Progress,
) -> Result<MergeReport, Failure> {
    let plan = plan_phase(comm, args, job, excluded, output, progress)?;
    let (inputs, agreed) = agree_on_rows(comm, args, job, &plan, progress)?;
    let mut report = first_report(args, &plan, &inputs, &agreed);
    print_warnings(comm, args, excluded, &report)?;
    if let Some(path) = &args.clock_plot {
        broadcast_result(comm, || plot(path, &agreed.clocks, &report))?;
    }
    check_size(comm, args, job, &inputs, &agreed, &mut report)?;
    let Some(output) = output else {
        report.rows = row_counts(&inputs.schema, &agreed.numbering.totals);
        return Ok(report);
    };
    let pages = write(comm, args, job, &inputs, &agreed, output.path(), progress)?;
    seal(comm, args, &plan, &inputs, &agreed, pages, output, &mut report, progress)?;
    Ok(report)
}

/// Phase 1.
fn plan_phase(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &MergeJob,
    excluded: &ExcludedInputs,
    output: Option<&PartialOutput>,
    progress: &mut Progress,
) -> Result<MergePlan, Failure> {
    progress.phase("plan");
    broadcast_result(comm, || plan_inputs(args, job, excluded, output))
}

/// Phases 2 and 3: every rank surveys its inputs, and all agree on ids and times.
fn agree_on_rows(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &MergeJob,
    plan: &MergePlan,
    progress: &mut Progress,
) -> Result<(SurveyedInputs, JobAgreement), Failure> {
    let inputs = survey_inputs(comm, args, plan, progress);
    let mut inputs = agree_on_result(comm, inputs)?;
    let agreed = agree(comm, args, job, plan, &mut inputs, progress)?;
    Ok((inputs, agreed))
}

/// Locks the output path and creates the output under a temporary name.
fn begin_output(comm: &impl Comm, args: &MergeArgs, job: &MergeJob) -> Result<PartialOutput, Failure> {
    let replaces = args.force || job.replaces_run.is_some();
    let mut output = agree_on_result(comm, PartialOutput::begin(&job.output, comm.rank() == 0, replaces))?;
    output.share();
    Ok(output)
}

/// Renames the finished file to its final name.
fn publish(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &MergeJob,
    output: &mut PartialOutput,
    report: &MergeReport,
) -> Result<(), Failure> {
    if comm.rank() == 0 {
        let published = output.publish(args.share)?;
        if let Some(verified) = &report.verify {
            verify_published(&job.output, published, &verified.contents)?;
        }
        job.write_index(args)?;
    }
    comm.barrier();
    output.release();
    Ok(())
}

/// Chooses the inputs to merge, and discards what a merge wrote before its restart.
fn plan_inputs(
    args: &MergeArgs,
    job: &MergeJob,
    excluded: &ExcludedInputs,
    output: Option<&PartialOutput>,
) -> Result<MergePlan, Failure> {
    output.map_or(Ok(()), PartialOutput::forget)?;
    let plan =
        plan((&job.files, &job.unused), job.output.clone(), &job.translation_notes, excluded, args.epilog)?;
    job.check_replaced(&plan.run_id)?;
    Ok(plan)
}

/// Returns the report as far as it is known before rows are written.
fn first_report(
    args: &MergeArgs,
    plan: &MergePlan,
    inputs: &SurveyedInputs,
    agreed: &JobAgreement,
) -> MergeReport {
    let found = &agreed.findings;
    let mut report = MergeReport::new(plan, &inputs.schema, &agreed.clocks, found);
    report.strings = (agreed.strings.before, agreed.strings.distinct);
    report.rows_read = row_counts(&inputs.schema, &found.rows_read);
    report.is_database = args.output_format() == OutputFormat::Rocpd;
    report.note_if_empty(&found.rows_read);
    match plan.only_previous_merge() {
        Some(previous) => report.adopt_results(previous),
        None => report.note_collectives(&agreed.collectives, agreed.late_ranks.clone()),
    }
    if found.mpi_calls == 0 && args.late != LateChoice::Never {
        report.note_no_calls(found);
    }
    if args.late == LateChoice::Auto {
        report.note_unusable_calls(found, !plan.previous_merges.is_empty());
    }
    report.notes.extend(agreed.clocks.clock_file_notes.iter().cloned());
    report.notes.extend(agreed.far_apart.iter().map(|note| plan.names.restore_names(note)));
    report.note_options_without_effect(args, plan);
    report.note_unprobed(&agreed.clocks.logs);
    if report.is_database {
        report.note_amd_tools(args.layout, &agreed.numbering.processes);
    }
    report
}

/// Prints the warnings that were not printed before a restart. With `--strict`, fails if the run is incomplete.
fn print_warnings(
    comm: &impl Comm,
    args: &MergeArgs,
    excluded: &mut ExcludedInputs,
    report: &MergeReport,
) -> Result<(), Failure> {
    let incomplete = if args.strict { report.incomplete() } else { None };
    if comm.rank() == 0 {
        let mut warnings = report.warning_lines();
        // The error repeats this warning, so it is not printed here.
        let in_error = incomplete.as_ref().and_then(|(_, warning)| warning.as_ref());
        warnings.retain(|line| Some(line) != in_error);
        excluded.print(warnings);
    }
    match incomplete {
        Some((reason, _)) => Err(shared_failure(comm, Failure::incomplete(reason))),
        None => Ok(()),
    }
}

/// Fails if the output would exceed its size limit; a dry run only adds a note.
fn check_size(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &MergeJob,
    inputs: &SurveyedInputs,
    agreed: &JobAgreement,
    report: &mut MergeReport,
) -> Result<(), Failure> {
    let numbers = PlannedRows {
        schema: &inputs.schema,
        totals: &agreed.numbering.totals,
        sets: agreed.sets.all.len() as u64,
    };
    report.planned_bytes =
        with_converted(planned_bytes(comm, &inputs.content, numbers)?, args.output_format());
    let note = broadcast_result(comm, || {
        let fits = job.limit.check(report.planned_bytes, &report.output);
        match args.dry_run {
            true => Ok(fits.err().map(|failure| failure.to_string())),
            false => fits.map(|()| None),
        }
    })?;
    report.notes.extend(note);
    Ok(())
}
