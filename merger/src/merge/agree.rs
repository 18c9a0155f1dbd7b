//! Phase 3: the ranks exchange what they read and agree on ids, clocks and table sets. Every step is collective.

use super::job::MergeJob;
use super::survey::SurveyedInputs;
use crate::agree::align::align_clocks;
use crate::agree::apart::note_of_files_far_apart;
use crate::agree::findings::{JobFindings, agree_on_findings};
use crate::agree::job_clocks::JobClocks;
use crate::budget::MemoryBudget;
use crate::input::plan::MergePlan;
use crate::number::{RowNumbering, gather_communicators, number_rows};
use crate::options::MergeArgs;
use crate::output::sets::{self, SharedTableRows, TableSets, table_sets};
use crate::strings::{self, StringIds};
use rpd_collectives::{LateRank, LatenessSummary, MatchedCollectives, match_calls};
use rpd_comm::{Comm, agree_on_result, all_gather_counts};
use rpd_console::{Failure, Progress};
use rpd_shard::model::rocpd;
use serde_json::Value as Json;

/// Results that are the same on all ranks, and the ids and memory of this rank that follow from them.
pub(crate) struct JobAgreement {
    /// Ids of this rank's strings.
    pub(crate) strings: StringIds,
    /// Totals over the inputs of all ranks.
    pub(crate) findings: JobFindings,
    /// Matched collectives of all ranks. The list of their calls is dropped at the end of this phase.
    pub(crate) collectives: MatchedCollectives,
    /// Late ranks, and the summary of their lateness.
    pub(crate) late_ranks: (Vec<LateRank>, Option<LatenessSummary>),
    /// Conversion of local times to job time.
    pub(crate) clocks: JobClocks,
    /// Note about files that are far apart in time.
    pub(crate) far_apart: Option<String>,
    /// Table sets of the output.
    pub(crate) sets: TableSets,
    /// Ids of rows.
    pub(crate) numbering: RowNumbering,
    /// Processes of the communicators, on rank 0.
    pub(crate) communicators: Option<Json>,
    /// Row counts of the string and node tables, whose rows are shared by several inputs.
    pub(crate) shared_rows: SharedTableRows,
    /// Memory of this rank that is left for writing.
    pub(crate) memory: MemoryBudget,
}

/// Exchanges strings, findings, collectives, clocks and row counts, in this order.
///
/// # Errors
/// A failure that the ranks have agreed on is returned by all of them. A failure of one rank ends the job in `run`.
pub(super) fn agree(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &MergeJob,
    plan: &MergePlan,
    inputs: &mut SurveyedInputs,
    progress: &mut Progress,
) -> Result<JobAgreement, Failure> {
    progress.phase("agree");
    let memory = agree_on_memory(comm, args, inputs)?;
    let strings = strings::number(comm, std::mem::take(&mut inputs.strings))?;
    let findings = agree_on_findings(comm, &inputs.surveys)?;
    progress.phase("match");
    let calls = inputs.take_collectives();
    let mut collectives = match_calls(comm, &inputs.sample, calls)?;
    progress.phase("align");
    let recorded = std::mem::take(&mut inputs.clocks);
    let clock_file = job.clock_file.as_ref();
    let clocks = align_clocks(comm, args, plan, clock_file, recorded, &collectives, &findings.nodes)?;
    let far_apart = note_of_files_far_apart(comm, &inputs.surveys, &clocks)?;
    let late_ranks = collectives.late_ranks(comm, &clocks.fits)?;
    collectives.counts.spread = collectives.exit_spread(comm, &clocks.fits)?;
    collectives.timed = Vec::new();
    let sets = table_sets(comm, args.layout, plan, &inputs.surveys, &findings)?;
    progress.phase("number");
    let mut numbering = number_rows(comm, &inputs.schema, &inputs.surveys)?;
    let shared_rows = match sets.is_partitioned() {
        false => SharedTableRows { strings: strings.distinct, nodes: findings.nodes.nodes().len() as u64 },
        true => sets::count_shared_rows(comm, &inputs.surveys, &findings.nodes)?,
    };
    let communicators = gather_communicators(comm, &inputs.surveys, &numbering)?;
    numbering.totals.extend([(rocpd::STRING, shared_rows.strings), (rocpd::INFO_NODE, shared_rows.nodes)]);
    Ok(JobAgreement {
        strings,
        findings,
        collectives,
        late_ranks,
        clocks,
        far_apart,
        sets,
        numbering,
        communicators,
        shared_rows,
        memory,
    })
}

/// Returns the memory that is left after what this rank holds, including the strings that it numbers for other ranks.
fn agree_on_memory(
    comm: &impl Comm,
    args: &MergeArgs,
    inputs: &mut SurveyedInputs,
) -> Result<MemoryBudget, Failure> {
    if comm.size() > 1 {
        // Hashes distribute the strings evenly over the ranks.
        let all_strings: u64 =
            all_gather_counts(comm, &[inputs.strings.len()])?.iter().map(|counts| counts[0]).sum();
        inputs.memory.owned_strings = all_strings / comm.size() as u64 + 1;
        agree_on_result(comm, args.memory.check(inputs.memory, (1, 1)))?;
    }
    Ok(args.memory.without(inputs.memory))
}
