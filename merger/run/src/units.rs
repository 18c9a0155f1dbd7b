//! Divides the rows of a run into units: one for each process, and one for the rows that no process claims. The
//! merge stored the ranges of ids of each process.

use crate::processes::RunProcess;
use crate::tables::{IdRanges, RunTables};
use rpd_console::Failure;
use rpd_shard::model::{TableId, rocpd};
use std::collections::HashMap;

/// Tables of rows that are drawn, in drawing order, and the tables joined with them.
pub const DRAWN_TABLES: [TableId; 7] = [
    rocpd::REGION,
    rocpd::SAMPLE,
    rocpd::KERNEL_DISPATCH,
    rocpd::MEMORY_COPY,
    rocpd::MEMORY_ALLOCATE,
    rocpd::PMC_EVENT,
    rocpd::ARG,
];

/// Tables that name the objects of a process.
const NAMING_TABLES: [TableId; 7] = [
    rocpd::INFO_THREAD,
    rocpd::INFO_AGENT,
    rocpd::INFO_QUEUE,
    rocpd::INFO_STREAM,
    rocpd::INFO_PMC,
    rocpd::INFO_KERNEL_SYMBOL,
    rocpd::TRACK,
];

/// Returns the tables with rows that are divided into units.
pub(crate) fn unit_tables() -> impl Iterator<Item = TableId> {
    DRAWN_TABLES.into_iter().chain(NAMING_TABLES).chain([rocpd::EVENT])
}

/// A part of the job's rows.
#[derive(Debug)]
pub struct RowUnit {
    /// Indices of its processes; all processes of the job for the unit of unclaimed rows.
    pub processes: Vec<u32>,
    /// Whether no process claims the rows. Their column pid determines the process of each.
    pub is_unclaimed: bool,
    ids: HashMap<TableId, IdRanges>,
}

impl RowUnit {
    /// Returns the ids of its rows in a table.
    pub fn ids(&self, table: TableId) -> &IdRanges {
        static NONE: IdRanges = IdRanges::none();
        self.ids.get(&table).unwrap_or(&NONE)
    }

    /// Returns whether it may have rows of a table.
    pub fn has_rows(&self, table: TableId) -> bool {
        !self.ids(table).is_empty()
    }

    /// Returns whether it may have rows of a table with ids in these bounds.
    pub fn has_ids_in(&self, table: TableId, (first, last): (i64, i64)) -> bool {
        self.ids(table).overlaps(first, last)
    }

    /// Returns the maximum number of rows in all tables.
    pub fn weight(&self) -> u64 {
        self.ids.values().map(IdRanges::count).fold(0, u64::saturating_add)
    }
}

/// Returns the units in the order of the job, and the number of rows of each table that belong to unselected
/// processes.
pub(crate) fn divide_rows(
    tables: &RunTables,
    processes: &[RunProcess],
) -> Result<(Vec<RowUnit>, HashMap<TableId, u64>), Failure> {
    let mut units: Vec<RowUnit> = Vec::new();
    let mut unselected: HashMap<TableId, u64> = HashMap::new();
    let mut rest: HashMap<TableId, IdRanges> = HashMap::new();
    let mut believed: Vec<bool> = vec![true; processes.len()];
    let mut bounds: HashMap<TableId, (i64, i64)> = HashMap::new();
    for table in unit_tables() {
        let Some((first, last)) = tables.id_bounds(table)? else { continue };
        bounds.insert(table, (first, last));
        let mut ranges: Vec<(i64, i64, usize)> = Vec::new();
        for (place, process) in processes.iter().enumerate() {
            ranges.extend(process.claims.get(&table).map(|(first, last)| (*first, *last, place)));
        }
        ranges.sort_unstable();
        // If two processes claim the same rows, the claims of both are ignored.
        for two in ranges.windows(2) {
            if let [(_, end, one), (start, _, other)] = two
                && start <= end
            {
                for place in [one, other] {
                    if let Some(believed) = believed.get_mut(*place) {
                        *believed = false;
                    }
                }
            }
        }
    }
    let believes = |place: usize| believed.get(place).copied().unwrap_or(false);
    let claimed_ids = |(table, (first, last)): (&TableId, &(i64, i64))| {
        let (from, to) = bounds.get(table)?;
        Some((*table, IdRanges::range(*first.max(from), *last.min(to)))).filter(|(_, ids)| !ids.is_empty())
    };
    for (table, (first, last)) in &bounds {
        let claimed = processes.iter().enumerate().filter(|(place, _)| believes(*place));
        let mut taken: Vec<(i64, i64)> =
            claimed.filter_map(|(_, process)| process.claims.get(table).copied()).collect();
        taken.sort_unstable();
        let free = IdRanges::between(*first, *last, &taken);
        if !free.is_empty() {
            rest.insert(*table, free);
        }
    }
    for (place, process) in processes.iter().enumerate() {
        if !believes(place) || process.claims.is_empty() {
            continue;
        }
        if !process.is_selected {
            for (table, ids) in process.claims.iter().filter_map(claimed_ids) {
                let sum = unselected.entry(table).or_default();
                *sum = sum.saturating_add(ids.count());
            }
            continue;
        }
        let ids = process.claims.iter().filter_map(claimed_ids).collect();
        units.push(RowUnit { processes: vec![place as u32], is_unclaimed: false, ids });
    }
    if DRAWN_TABLES.iter().any(|table| rest.contains_key(table)) {
        let all = (0..processes.len() as u32).collect();
        units.push(RowUnit { processes: all, is_unclaimed: true, ids: rest });
    }
    let order = |unit: &RowUnit| {
        let first = unit.processes.first().and_then(|place| processes.get(*place as usize));
        (unit.is_unclaimed, first.map(|process| process.info.order))
    };
    units.sort_by_key(order);
    Ok((units, unselected))
}
