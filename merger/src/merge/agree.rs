//! Phase 3: what the ranks know after they have exchanged it. Every step is collective.

use super::job::MergeJob;
use super::survey::SurveyedInputs;
use crate::agree::align::align_clocks;
use crate::agree::apart::note_of_files_far_apart;
use crate::agree::clocks::JobClocks;
use crate::agree::findings::{JobFindings, agree_on_findings};
use crate::budget::MemoryBudget;
use crate::cli::MergeArgs;
use crate::input::plan::MergePlan;
use crate::number::{RowNumbering, number_rows};
use crate::output::sets::{self, SmallRows, TableSets, table_sets};
use crate::strings::{self, StringIds};
use rpd_collectives::{LateRank, LatenessSummary, MatchedCollectives, exit_spread, late_ranks, match_calls};
use rpd_comm::{Comm, agree_on_result, gather_counts};
use rpd_console::{Failure, Progress};
use rpd_shard::model::rocpd;

/// What all ranks know.
pub(super) struct JobAgreement {
    /// Ids of the strings of this rank.
    pub(super) strings: StringIds,
    /// What the inputs of all ranks hold.
    pub(super) findings: JobFindings,
    /// Collectives of all ranks, counted.
    pub(super) collectives: MatchedCollectives,
    /// Ranks that the others waited for, and the verdict.
    pub(super) late_ranks: (Vec<LateRank>, Option<LatenessSummary>),
    /// How local times become job time.
    pub(super) clocks: JobClocks,
    /// A note about files that are far apart in time.
    pub(super) far_apart: Option<String>,
    /// The sets of tables of the output.
    pub(super) sets: TableSets,
    /// The ids of rows.
    pub(super) numbering: RowNumbering,
    /// Rows of tables that are not numbered by inputs.
    pub(super) small_rows: SmallRows,
    /// The memory of this rank that is left for writing.
    pub(super) memory: MemoryBudget,
}

/// Exchanges strings, findings, collectives, clocks and row counts, in this order.
///
/// # Errors
/// What one rank fails with, all fail with.
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
    let late_ranks = late_ranks(comm, &collectives, &clocks.fits)?;
    collectives.counts.spread = exit_spread(comm, &collectives, &clocks.fits)?;
    collectives.kept = Vec::new();
    let sets = table_sets(comm, args.layout, plan, &inputs.surveys, &findings)?;
    progress.phase("number");
    let mut numbering = number_rows(comm, &inputs.schema, &inputs.surveys)?;
    let small_rows = match sets.is_partitioned() {
        false => SmallRows { strings: strings.distinct, nodes: findings.nodes.nodes().len() as u64 },
        true => sets::count_small(comm, &inputs.surveys, &findings.nodes)?,
    };
    numbering.totals.extend([(rocpd::STRING, small_rows.strings), (rocpd::INFO_NODE, small_rows.nodes)]);
    Ok(JobAgreement {
        strings,
        findings,
        collectives,
        late_ranks,
        clocks,
        far_apart,
        sets,
        numbering,
        small_rows,
        memory,
    })
}

/// The memory that is left beside what this rank holds, and beside the strings that it gives ids for other ranks.
fn agree_on_memory(
    comm: &impl Comm,
    args: &MergeArgs,
    inputs: &mut SurveyedInputs,
) -> Result<MemoryBudget, Failure> {
    if comm.size() > 1 {
        // Hashes deal them evenly.
        let asked: u64 = gather_counts(comm, &[inputs.strings.len()])?.iter().map(|counts| counts[0]).sum();
        inputs.memory.asked = asked / comm.size() as u64 + 1;
        agree_on_result(comm, args.memory.check(inputs.memory, (1, 1)))?;
    }
    Ok(args.memory.without(inputs.memory))
}
