//! Alignment of all nodes' clocks with the reference clock.

use super::clocks::{AlignOptions, GatheredClocks};
use super::job_clocks::JobClocks;
use super::nodes::JobNodes;
use super::recorded_clocks::RecordedClocks;
use crate::input::plan::{MergePlan, PreviousMerge};
use crate::options::MergeArgs;
use rpd_clocks::{AlignChoice, ClockFile};
use rpd_collectives::MatchedCollectives;
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::record::ClockDomain;

/// Aligns all clocks with the reference clock, according to the options.
pub(crate) fn align_clocks(
    comm: &impl Comm,
    args: &MergeArgs,
    plan: &MergePlan,
    clock_file: Option<&ClockFile>,
    recorded: RecordedClocks,
    matched: &MatchedCollectives,
    nodes: &JobNodes,
) -> Result<JobClocks, Failure> {
    let fixed: Vec<ClockDomain> = plan.previous_merges.iter().filter_map(PreviousMerge::reference).collect();
    let observed = GatheredClocks::gather(comm, recorded, &fixed)?;
    let collectives =
        match observed.is_of_several() && (args.align != AlignChoice::None || clock_file.is_some()) {
            true => matched.clock_observations(comm, &observed.observations.domains)?,
            false => Vec::new(),
        };
    let how = AlignOptions {
        align: args.align,
        repair_causality: args.repair_causality,
        clock_file,
        nodes,
        host_clocks: &plan.host_clocks,
    };
    observed.align(comm, collectives, &how)
}
