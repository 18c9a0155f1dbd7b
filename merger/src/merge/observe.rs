//! What a merge knows of the clocks of a job, for measurements of how well they are aligned.

use super::{Own, survey_all, take_collectives};
use crate::agree::clocks::Observed;
use crate::cli::MergeArgs;
use crate::input::gone::Since;
use crate::input::plan::plan;
use crate::input::schema::JobSchema;
use crate::listing::Listing;
use rpd_clocks::Observations;
use rpd_collectives::{Sample, clock_observations, match_calls};
use rpd_comm::Solo;
use rpd_console::{Failure, Progress};

/// The clocks of a job as its collectors observed them.
#[derive(Clone, Debug)]
pub struct JobObservations {
    /// What [`rpd_clocks::align`] takes.
    pub observations: Observations,
    /// From when to when each domain was recorded, ns of its BOOTTIME; `None` if that is not known.
    pub spans: Vec<Option<(i64, i64)>>,
}

/// Reads the inputs as a merge does, up to the moment at which it would align the clocks. Writes nothing.
///
/// # Errors
/// As a merge, if an input cannot be read or belongs to another run.
pub fn job_observations(args: &MergeArgs) -> Result<JobObservations, Failure> {
    let comm = &Solo;
    let listing = Listing::new(args)?;
    let plan = plan(
        (&listing.files, &listing.unused),
        listing.output.clone(),
        &listing.told,
        &Since::default(),
        args.epilog,
    )?;
    let schema = JobSchema::new(&plan.schema);
    let sample = Sample::new(args.memory.collectives());
    let own = Own::new(&plan, comm);
    let mut surveyed = survey_all(&own, &schema, &sample, args, &Progress::new(false))?;
    let matched = match_calls(comm, &sample, take_collectives(&mut surveyed.surveys))?;
    let observed = Observed::gather(comm, surveyed.recorded, &[])?;
    let spans = observed.spans();
    let mut observations = observed.observations;
    observations.meetings = clock_observations(comm, &matched, &observations.domains)?;
    Ok(JobObservations { observations, spans })
}
