//! Clock observations of a job, for measurements of how well clocks are aligned.

use super::job::MergeJob;
use super::survey::survey_inputs;
use crate::agree::clocks::GatheredClocks;
use crate::input::plan::{ExcludedInputs, plan};
use crate::options::MergeArgs;
use rpd_clocks::ClockObservations;
use rpd_collectives::match_calls;
use rpd_comm::Solo;
use rpd_console::{Failure, Progress};

/// Clock observations of a job, as its collectors recorded them.
#[derive(Clone, Debug)]
pub struct JobObservations {
    /// Input of [`rpd_clocks::align`].
    pub observations: ClockObservations,
    /// Recorded time span of each clock domain, ns of its BOOTTIME; `None` if unknown.
    pub spans: Vec<Option<(i64, i64)>>,
}

/// Reads the inputs like a merge, up to the point where a merge aligns the clocks. Writes nothing.
///
/// # Errors
/// As a merge, if an input cannot be read or belongs to another run.
pub fn job_observations(args: &MergeArgs) -> Result<JobObservations, Failure> {
    let comm = &Solo;
    let job = MergeJob::list(args)?;
    let files = (&job.files[..], &job.unused);
    let plan =
        plan(files, job.output.clone(), &job.translation_notes, &ExcludedInputs::default(), args.epilog)?;
    let mut inputs = survey_inputs(comm, args, &plan, &mut Progress::new(false))?;
    let calls = inputs.take_collectives();
    let matched = match_calls(comm, &inputs.sample, calls)?;
    let observed = GatheredClocks::gather(comm, inputs.clocks, &[])?;
    let spans = observed.spans();
    let mut observations = observed.observations;
    observations.collectives = matched.clock_observations(comm, &observations.domains)?;
    Ok(JobObservations { observations, spans })
}
