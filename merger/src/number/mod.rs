//! Assigns id bases to every source in phase 3, and renumbers rows accordingly.

mod communicators;
mod json_ids;
mod placeholder;
mod renumber;
mod row_numbering;

pub(crate) use communicators::gather_communicators;
pub(crate) use placeholder::placeholders;
pub(crate) use renumber::{ReplacedValues, SourceMap};
pub(crate) use row_numbering::{RowNumbering, number_rows};

use crate::input::{InputSource, JobSchema};
use rpd_shard::model::{TableId, rocpd};
use std::collections::BTreeMap;

/// Offsets that are added to a source's keys, per table, and to its stack ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceBases {
    /// Offsets per table, except processes.
    keys: BTreeMap<TableId, i64>,
    /// Ids of the processes, by their numbers in the source.
    processes: Box<[i64]>,
    /// Offset of stack ids.
    pub stacks: i64,
}

impl SourceBases {
    /// Returns the id of the row with this number among the source's rows of a table.
    pub(crate) fn id(&self, table: TableId, number: i64) -> i64 {
        match table {
            rocpd::INFO_PROCESS => {
                let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
                place.and_then(|place| self.processes.get(place)).copied().unwrap_or(0)
            }
            table => self.keys.get(&table).copied().unwrap_or(0) + number,
        }
    }
}

/// Returns how many ids a source needs: one count per numbered table, then the count of stack ids.
pub(crate) fn demand(source: &InputSource, job: &JobSchema) -> Vec<u64> {
    let space = |table: &TableId| source.spaces.get(table).map_or(0, |s| (s.next - 1).max(0) as u64);
    job.numbered.iter().map(space).chain([source.stacks.len() as u64]).collect()
}

/// Returns the bases of consecutive sources. The first source begins at `start`; `processes` are the ids of the
/// sources' processes. `region_ids` is the number of region ids of the whole job, because samples share the id
/// space of regions.
pub(crate) fn bases(
    job: &JobSchema,
    start: &[u64],
    demands: &[Vec<u64>],
    processes: Vec<Box<[i64]>>,
    region_ids: u64,
) -> Vec<SourceBases> {
    let tables = &job.numbered;
    let mut at = start.to_vec();
    let mut all = Vec::with_capacity(demands.len());
    for (demand, processes) in demands.iter().zip(processes) {
        let keys = tables.iter().zip(&at).map(|(table, base)| match *table {
            rocpd::SAMPLE => (*table, (base + region_ids) as i64),
            table => (table, *base as i64),
        });
        all.push(SourceBases { keys: keys.collect(), processes, stacks: at[tables.len()] as i64 });
        at.iter_mut().zip(demand).for_each(|(at, n)| *at += n);
    }
    all
}
