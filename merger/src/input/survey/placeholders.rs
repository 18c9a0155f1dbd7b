//! Reserves ids for placeholder rows.

use crate::input::{InputTables, JobSchema, KeySpace, needed_rows};
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, BlockRef};
use rpd_shard::model::{Column, Kind, TableId, native, rocpd};
use rpd_shard::record::{Loss, LossCause};
use std::collections::{BTreeMap, BTreeSet};

/// Reserves a placeholder row in every table that lacks a referenced row.
pub(super) fn reserve_placeholders(
    spaces: &mut BTreeMap<TableId, KeySpace>,
    missing: BTreeSet<TableId>,
    job: &JobSchema,
) {
    // A node always exists, and rows of a lost process are assigned to the first existing process.
    let has_process = spaces.get(&rocpd::INFO_PROCESS).is_some_and(|space| !space.stored.is_empty());
    let has_own_row = |table: &TableId| match *table {
        rocpd::INFO_PROCESS => has_process,
        table => table == rocpd::INFO_NODE,
    };
    let mut needed: BTreeSet<TableId> = missing.into_iter().filter(|table| !has_own_row(table)).collect();
    // A placeholder can need other placeholders: a kernel symbol refers to a code object.
    let mut queue: Vec<TableId> = needed.iter().copied().collect();
    while let Some(table) = queue.pop() {
        for column in job.get(table).iter().flat_map(|t| &t.columns) {
            if let Kind::Ref(target) = column.kind
                && column.sql.not_null
                && !has_own_row(&target)
                && needed.insert(target)
            {
                queue.push(target);
            }
        }
    }
    for table in needed {
        let space = spaces.entry(table).or_default();
        space.placeholder = Some(space.next);
        space.next += 1;
    }
}

/// Returns whether a row of a block has a mandatory reference to a row of `target` that does not exist.
pub(super) fn leads_nowhere(
    shard: &Shard,
    tables: &InputTables,
    block: &BlockRef,
    target: TableId,
    spaces: &BTreeMap<TableId, KeySpace>,
) -> bool {
    let is_link = |column: &Column| column.kind == Kind::Ref(target) && column.sql.not_null;
    let space = spaces.get(&target);
    let is_there = |key| space.is_some_and(|space| space.stored(key).is_some());
    // An unreadable block was reported before.
    let Ok(rows) = needed_rows(shard, tables, block, &is_link) else { return false };
    let links = rows.table.columns.iter().zip(&rows.columns).filter(|(column, _)| is_link(column));
    let mut missing = links.flat_map(|(_, cells)| (0..rows.len).map(|i| cells.int(i)));
    missing.any(|key| !key.is_some_and(is_there))
}

/// Returns the rows that were written according to the ledger or block headers, but could not be read.
pub(super) fn missing_rows(
    shard: &Shard,
    is_merged: impl Fn(TableId) -> bool,
    readable: &BTreeMap<(u32, TableId), u64>,
) -> Vec<Loss> {
    let mut written: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
    let headers = shard.blocks().iter().map(|b| b.header);
    let cut = shard.damage().iter().filter_map(|d| d.block);
    let by_headers = headers.chain(cut).filter_map(|header| match header.kind {
        BlockKind::Rows(table) => Some((header.source, table, header.next_key().saturating_sub(1) as u64)),
        _ => None,
    });
    let by_ledger = shard.ledger.iter().flat_map(|ledger| ledger.written.iter().copied());
    for (source, table, rows) in by_headers.chain(by_ledger) {
        if is_merged(table) && source != 0 || (source, table) == (0, rocpd::STRING) {
            let known = written.entry((source, table)).or_default();
            *known = (*known).max(rows);
        }
    }
    let cause = if shard.ledger.is_some() { LossCause::DamagedBlock } else { LossCause::Truncated };
    let mut losses: Vec<Loss> = written
        .into_iter()
        .filter_map(|((source, table), rows)| {
            let lost = rows.saturating_sub(readable.get(&(source, table)).copied().unwrap_or(0));
            (lost > 0).then_some(Loss { source, table: Some(table), cause, rows: Some(lost) })
        })
        .collect();
    // Without the ledger at the end of a shard, further losses are unknown.
    if shard.ledger.is_none() {
        losses.push(Loss { source: 0, table: None, cause, rows: None });
    }
    losses
}

/// Returns whether a loss may include an MPI call of this process. Rows at the cut end of a shard are later than all
/// recorded calls.
pub(super) fn may_be_call_of(loss: &Loss, source: u32) -> bool {
    let is_of_process = loss.source == source || loss.source == 0;
    let is_of_table =
        loss.table.map_or(loss.cause != LossCause::Truncated, |table| table == native::MPI_CALL);
    is_of_process && is_of_table && loss.rows != Some(0)
}
