//! Assigns ids to all rows, by agreement of the merge ranks.

use super::{SourceBases, bases, demand};
use crate::agree::processes::{self, JobProcesses};
use crate::input::JobSchema;
use crate::input::survey::InputSurvey;
use rpd_comm::{Comm, all_gather_counts, shared_failure};
use rpd_console::Failure;
use rpd_shard::model::{TableId, rocpd};
use std::collections::BTreeMap;

/// Ids of the output's rows.
pub(crate) struct RowNumbering {
    /// Id bases of this rank's sources, per input.
    pub bases: Vec<Vec<SourceBases>>,
    /// Number of rows of the whole job, by table.
    pub totals: BTreeMap<TableId, u64>,
    /// Properties of all processes of the job.
    pub processes: JobProcesses,
}

/// Assigns to each source of every rank the first id of each of its tables.
///
/// # Errors
/// If the inputs have more rows than a database can number.
pub(crate) fn number_rows(
    comm: &impl Comm,
    schema: &JobSchema,
    surveys: &[InputSurvey],
) -> Result<RowNumbering, Failure> {
    let tables = &schema.numbered;
    let sources = || surveys.iter().flat_map(|s| &s.sources);
    let demands: Vec<Vec<u64>> = sources().map(|source| demand(source, schema)).collect();
    let sum = |numbers: &[Vec<u64>], i: usize| numbers.iter().map(|n| n[i]).fold(0u64, u64::saturating_add);
    let mine: Vec<u64> = (0..=tables.len()).map(|i| sum(&demands, i)).collect();
    let all = all_gather_counts(comm, &mine)?;
    let start: Vec<u64> = (0..=tables.len()).map(|i| sum(&all[..comm.rank()], i)).collect();
    let regions = tables.iter().position(|t| *t == rocpd::REGION).map_or(0, |i| sum(&all, i));
    if (0..=tables.len()).any(|i| sum(&all, i).saturating_add(regions) > i64::MAX as u64) {
        let failure = Failure::input("the inputs claim more rows than a database can number");
        return Err(shared_failure(comm, failure));
    }
    let (ids, processes) = processes::number(comm, surveys)?;
    let mut flat = bases(schema, &start, &demands, ids, regions).into_iter();
    let bases = surveys.iter().map(|s| flat.by_ref().take(s.sources.len()).collect()).collect();

    let rows = |table: TableId| -> u64 {
        sources().map(|source| source.spaces.get(&table).map_or(0, |space| space.rows())).sum()
    };
    let mine: Vec<u64> = tables.iter().map(|t| rows(*t)).collect();
    let all = all_gather_counts(comm, &mine)?;
    let totals = tables.iter().enumerate().map(|(i, t)| (*t, sum(&all, i))).collect();
    Ok(RowNumbering { bases, totals, processes })
}
