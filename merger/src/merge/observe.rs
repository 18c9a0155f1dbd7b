//! What a merge knows of the clocks of a job, for measurements of how well they are aligned.

use super::job::MergeJob;
use super::survey::survey_inputs;
use crate::agree::clocks::GatheredClocks;
use crate::cli::MergeArgs;
use crate::input::gone::ExcludedInputs;
use crate::input::plan::plan;
use rpd_clocks::ClockObservations;
use rpd_collectives::{clock_observations, match_calls};
use rpd_comm::Solo;
use rpd_console::{Failure, Progress};

/// The clocks of a job as its collectors observed them.
#[derive(Clone, Debug)]
pub struct JobObservations {
    /// What [`rpd_clocks::align`] takes.
    pub observations: ClockObservations,
    /// From when to when each domain was recorded, ns of its BOOTTIME; `None` if that is not known.
    pub spans: Vec<Option<(i64, i64)>>,
}

/// Reads the inputs as a merge does, up to the moment at which it would align the clocks. Writes nothing.
///
/// # Errors
/// As a merge, if an input cannot be read or belongs to another run.
pub fn job_observations(args: &MergeArgs) -> Result<JobObservations, Failure> {
    let comm = &Solo;
    let job = MergeJob::list(args)?;
    let files = (&job.files[..], &job.unused);
    let plan = plan(files, job.output.clone(), &job.told, &ExcludedInputs::default(), args.epilog)?;
    let mut inputs = survey_inputs(comm, args, &plan, &mut Progress::new(false))?;
    let calls = inputs.take_collectives();
    let matched = match_calls(comm, &inputs.sample, calls)?;
    let observed = GatheredClocks::gather(comm, inputs.clocks, &[])?;
    let spans = observed.spans();
    let mut observations = observed.observations;
    observations.meetings = clock_observations(comm, &matched, &observations.domains)?;
    Ok(JobObservations { observations, spans })
}
