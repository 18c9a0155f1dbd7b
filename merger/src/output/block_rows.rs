//! Rows of one block of a shard.

use super::piece_rows::PieceRows;
use super::provenance;
use crate::input::expand::ExpansionContext;
use crate::input::{ExpandedKeys, RowOrigin, block_rows, expand, needed_rows, vanished_input};
use crate::number::{ReplacedValues, SourceMap};
use rpd_console::Failure;
use rpd_run::EventArgs;
use rpd_shard::Shard;
use rpd_shard::file::{BlockRef, ShardStrings};
use rpd_shard::model::{Merged, Rows, rocpd};

/// Number of native rows that are expanded at once; their results stay in a core's cache.
const EXPANDED_AT_ONCE: usize = 2_048;

/// Callback that receives rows.
pub(super) type TakeMergedRows<'a> = dyn FnMut(&Rows<Merged>) -> Result<(), Failure> + 'a;

/// Passes rows of a block to `take`; native rows are expanded in portions, into rows with keys from the given ones on.
pub(super) fn take_block(
    shard: &Shard,
    (block, keys): (&BlockRef, Option<&ExpandedKeys>),
    what: PieceRows,
    map: &SourceMap<'_>,
    texts: &ShardStrings,
    replaced: &mut ReplacedValues,
    take: &mut TakeMergedRows<'_>,
) -> Result<(), Failure> {
    let tables = &map.source.tables;
    let rows = match what {
        PieceRows::OfTable(table, wanted) => needed_rows(shard, tables, block, &|column| match keys {
            Some(_) => expand::needs_column(&column.name, table, wanted),
            None => what.needs(column),
        }),
        PieceRows::Processes | PieceRows::Others => block_rows(shard, tables, block),
    };
    let rows = rows.map_err(|error| vanished_input(shard.path(), &error.cause))?;
    let Some(keys) = keys else {
        let handles = block.header.handles.then(|| rows.keys.clone());
        let mut merged = map.renumber_columns(rows, RowOrigin::Stored, what.columns(), replaced);
        if let Some(handles) = handles {
            provenance::note_handles(&mut merged, &handles);
        }
        return take(&merged);
    };
    let source = map.source;
    let process = &source.process;
    let last_seen = process.last_seen.unwrap_or(process.first_seen);
    let context = ExpansionContext { strings: texts, tracks: &source.tracks, last_seen };
    let mut keys = *keys;
    for from in (0..rows.len).step_by(EXPANDED_AT_ONCE) {
        let mut portion = rows.portion(from..(from + EXPANDED_AT_ONCE).min(rows.len));
        let expanded = match what {
            PieceRows::OfTable(table, wanted) => {
                if table == rocpd::ARG {
                    map.renumber_stack_args(&mut portion, replaced);
                }
                expand::expand_table(table, wanted, &portion, &keys, &context).into_iter().collect()
            }
            PieceRows::Processes | PieceRows::Others => {
                map.renumber_stack_args(&mut portion, replaced);
                expand::expand(&portion, &keys, &context, replaced)
            }
        };
        for (table, rows) in expand::counts(&portion) {
            keys.advance(table, rows as i64);
        }
        for rows in expanded {
            take(&map.renumber_columns(rows, RowOrigin::Expanded, what.columns(), replaced))?;
        }
    }
    Ok(())
}

/// Passes the args of a block of native rows to `take`. `keys` are those of the first rows that it expands to.
pub(super) fn take_block_args(
    shard: &Shard,
    (block, keys): (&BlockRef, &ExpandedKeys),
    map: &SourceMap<'_>,
    texts: &ShardStrings,
    take: &mut dyn FnMut(EventArgs<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let source = map.source;
    let rows = needed_rows(shard, &source.tables, block, &|column| expand::is_arg(&column.name));
    let mut rows = rows.map_err(|error| vanished_input(shard.path(), &error.cause))?;
    map.renumber_stack_args(&mut rows, &mut ReplacedValues::new());
    let context = ExpansionContext { strings: texts, tracks: &source.tracks, last_seen: 0 };
    let first_event = map.bases.id(rocpd::EVENT, keys.event);
    for (name, values) in expand::arg_columns(&rows, &context) {
        take(EventArgs::Column { first_event, events: rows.len, name, values: &values })?;
    }
    Ok(())
}
