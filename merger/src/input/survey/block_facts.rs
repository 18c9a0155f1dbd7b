//! Facts that a survey collects from one block of rows.

use crate::input::memberships::Memberships;
use crate::input::source::join;
use crate::input::survey::crashed::OpenSpans;
use crate::input::survey::row_texts::text_bytes;
use crate::input::{BuiltinString, InputTables, NO_THREAD, block_rows, expand, needed_rows};
use rpd_collectives::{CallSample, ProcessCollectives};
use rpd_shard::Shard;
use rpd_shard::file::{BlockError, BlockKind, BlockRef, ShardStrings};
use rpd_shard::model::native::{MARK, is_native};
use rpd_shard::model::{Cells, Column, Kind, Local, Rows, TableId, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of sample tracks per process. Further threads share one track per name.
const MAX_TRACKS: usize = 65_536;

/// Facts that the survey keeps of each block.
#[derive(Debug)]
pub(super) struct BlockFacts {
    pub(super) block: BlockRef,
    /// Runs of consecutive keys, each as a half-open range: first key, and the key after the last.
    pub(super) key_ranges: Vec<(i64, i64)>,
    /// Rows that the block expands to, per table.
    pub(super) expanded: Vec<(TableId, u64)>,
    /// Bytes of text that the block has in the output, per table.
    pub(super) texts: Vec<(TableId, u64)>,
}

impl BlockFacts {
    pub(super) fn is_native(&self) -> bool {
        matches!(self.block.header.kind, BlockKind::Rows(table) if expand::is_native(table))
    }
}

/// Facts that the survey combines over all blocks of a process.
#[derive(Debug, Default)]
pub(super) struct SourceFacts {
    /// Smallest and largest referenced key per table. Includes a key outside of the table's range if a mandatory
    /// reference is NULL or not an integer.
    pub(super) refs: BTreeMap<TableId, (i64, i64)>,
    /// Smallest and largest stack id.
    pub(super) stacks: Option<(i64, i64)>,
    /// Whether any string id is undefined.
    pub(super) lost_strings: bool,
    /// Tracks that samples need: thread and name. [`NO_THREAD`] stands for all threads that are not in the shard.
    pub(super) tracks: BTreeSet<(i64, BuiltinString)>,
    /// Ranges and calls without an end.
    pub(super) open: OpenSpans,
    /// Collectives of the process.
    pub(super) collectives: ProcessCollectives,
    /// Communicators of the process.
    pub(super) memberships: Memberships,
}

impl SourceFacts {
    fn refer(&mut self, table: TableId, low: i64, high: i64) {
        let known = self.refs.entry(table).or_insert((low, high));
        *known = (known.0.min(low), known.1.max(high));
    }

    /// Adds the facts of another block.
    pub(super) fn add(&mut self, other: SourceFacts, sample: &CallSample) {
        for (table, (low, high)) in other.refs {
            self.refer(table, low, high);
        }
        self.stacks = join(self.stacks, other.stacks);
        self.lost_strings |= other.lost_strings;
        self.open.add(other.open);
        self.collectives.add(other.collectives, sample);
        self.memberships.add(other.memberships);
        for (thread, name) in other.tracks {
            let full = self.tracks.len() >= MAX_TRACKS && !self.tracks.contains(&(thread, name));
            self.tracks.insert((if full { NO_THREAD } else { thread }, name));
        }
    }
}

fn bounds(mut values: impl Iterator<Item = i64>) -> Option<(i64, i64)> {
    let first = values.next()?;
    Some(values.fold((first, first), |(low, high), v| (low.min(v), high.max(v))))
}

/// Returns the smallest and largest stack id of a column.
pub(super) fn stack_bounds(cells: &Cells, rows: usize) -> Option<(i64, i64)> {
    let keys = || (0..rows).filter_map(|i| cells.get(i).stack_id());
    cells.plain_ints().map_or_else(|| bounds(keys()), |values| bounds(values.iter().copied()))
}

/// Returns whether the survey reads the values of columns of this kind, not only their NULLs.
fn is_looked_at(kind: &Kind) -> bool {
    matches!(kind, Kind::Ref(_) | Kind::Stack | Kind::Str)
}

/// Decodes a block. `threads` are the key ranges of the process's thread rows, ascending.
pub(super) fn facts(
    shard: &Shard,
    tables: &InputTables,
    block: &BlockRef,
    strings: &ShardStrings,
    threads: &[(i64, i64)],
    sample: &CallSample,
) -> Result<(BlockFacts, SourceFacts), BlockError> {
    // The survey needs nearly all columns of ranges and calls, so it decodes them completely.
    let rows = match block.header.kind {
        BlockKind::Rows(table) if is_native(table) && table != MARK => block_rows(shard, tables, block)?,
        _ => needed_rows(shard, tables, block, &|column| is_looked_at(&column.kind))?,
    };
    let collectives = ProcessCollectives::of_block(&rows, strings, sample);
    let memberships = Memberships::of_block(&rows, strings);
    let mut facts =
        SourceFacts { open: OpenSpans::of(&rows), collectives, memberships, ..SourceFacts::default() };
    for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
        let ints = || (0..rows.len).filter_map(|i| cells.int(i));
        match &column.kind {
            Kind::Ref(table) => {
                let found = cells.plain_ints().map_or_else(|| bounds(ints()), |v| bounds(v.iter().copied()));
                if let Some((low, high)) = found {
                    facts.refer(*table, low, high);
                }
                // Key 0 exists in no table, so this reference gets a placeholder.
                if column.sql.not_null && cells.plain_ints().is_none() && ints().count() < rows.len {
                    facts.refer(*table, 0, 0);
                }
            }
            Kind::Stack => facts.stacks = join(facts.stacks, stack_bounds(cells, rows.len)),
            Kind::Str => {
                let is_lost = match cells.plain_ints().map(|values| bounds(values.iter().copied())) {
                    Some(found) => found.is_some_and(|(low, high)| !strings.has_all(low, high)),
                    None => true,
                };
                facts.lost_strings |= is_lost && lacks_strings(column, cells, rows.len, strings);
            }
            _ => {}
        }
    }
    if let Some(name) = BuiltinString::track_of(rows.id()) {
        facts.tracks = threads_of(&rows, threads).into_iter().map(|thread| (thread, name)).collect();
    }
    let expanded = if expand::is_native(rows.id()) { expand::counts(&rows) } else { Vec::new() };
    let texts = text_bytes(&rows, strings);
    Ok((BlockFacts { block: *block, key_ranges: rows.keys.ranges(rows.len), expanded, texts }, facts))
}

/// Returns whether a column of string ids has some that the table lacks.
fn lacks_strings(column: &Column, cells: &Cells, rows: usize, strings: &ShardStrings) -> bool {
    // Adjacent rows mostly have the same string.
    let mut known = None;
    (0..rows).any(|i| match cells.get(i) {
        Value::Null => column.sql.not_null,
        Value::Int(id) if known == Some(id) => false,
        Value::Int(id) => {
            known = Some(id);
            strings.get(id).is_none()
        }
        _ => true,
    })
}

/// Returns the threads of samples.
fn threads_of(rows: &Rows<Local>, threads: &[(i64, i64)]) -> BTreeSet<i64> {
    let keys = rows.column("tid");
    let known = |key: &i64| {
        let i = threads.partition_point(|(_, next)| next <= key);
        threads.get(i).is_some_and(|(first, _)| first <= key)
    };
    let mut last = None;
    let mut all = BTreeSet::new();
    for key in (0..rows.len).map(|i| keys.int(i)) {
        // Samples of one thread mostly follow each other.
        if last != Some(key) {
            all.insert(key.filter(known).unwrap_or(NO_THREAD));
            last = Some(key);
        }
    }
    all
}
