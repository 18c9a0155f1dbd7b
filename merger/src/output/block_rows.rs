//! Rows of one block of a shard.

use super::piece_rows::PieceRows;
use super::provenance;
use crate::input::expand::ExpansionContext;
use crate::input::{BuiltinString, ExpandedKeys, RowOrigin, block_rows, expand, needed_rows, vanished_input};
use crate::number::{ReplacedValues, SourceMap};
use rpd_console::Failure;
use rpd_run::JoinedEvents;
use rpd_shard::Shard;
use rpd_shard::file::{BlockRef, ShardStrings};
use rpd_shard::model::{Cells, Column, Kind, Merged, Rows, TableId, rocpd};

/// Number of native rows that are expanded at once; their results stay in a core's cache.
const EXPANDED_AT_ONCE: usize = 2_048;

/// Callback that receives rows.
pub(super) type TakeMergedRows<'a> = dyn FnMut(Rows<Merged>) -> Result<(), Failure> + 'a;

/// Callback that receives rows, and what is joined with them.
pub(super) type TakeMadeRows<'a> =
    dyn FnMut(Rows<Merged>, Option<JoinedEvents<'_>>) -> Result<(), Failure> + 'a;

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
        return take(merged);
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
            take(map.renumber_columns(rows, RowOrigin::Expanded, what.columns(), replaced))?;
        }
    }
    Ok(())
}

/// Passes the regions or samples of a block of native rows to `take`, with their events. `keys` are those of the first
/// rows that it expands to.
pub(super) fn take_joined_block(
    shard: &Shard,
    (block, keys): (&BlockRef, &ExpandedKeys),
    (table, wanted, whole_events): (TableId, &'static [&'static str], bool),
    map: &SourceMap<'_>,
    texts: &ShardStrings,
    take: &mut TakeMadeRows<'_>,
) -> Result<(), Failure> {
    let source = map.source;
    let needs = |column: &Column| {
        let name = &*column.name;
        expand::needs_column(name, table, wanted)
            || whole_events && (expand::is_arg(name) || column.kind == Kind::Stack)
    };
    let rows = needed_rows(shard, &source.tables, block, &needs);
    let mut rows = rows.map_err(|error| vanished_input(shard.path(), &error.cause))?;
    let last_seen = source.process.last_seen.unwrap_or(source.process.first_seen);
    let context = ExpansionContext { strings: texts, tracks: &source.tracks, last_seen };
    let Some(expanded) = expand::expand_table(table, wanted, &rows, keys, &context) else { return Ok(()) };
    // Nothing is written, so that replaced values are not counted.
    let mut replaced = ReplacedValues::new();
    let expanded = map.renumber_columns(expanded, RowOrigin::Expanded, Some(wanted), &mut replaced);
    let category =
        BuiltinString::of_table(rows.id()).first().and_then(|category| map.strings.builtin(*category));
    let (mut args, mut stacks) = (Vec::new(), [Cells::Absent, Cells::Absent]);
    if whole_events {
        map.renumber_stack_args(&mut rows, &mut replaced);
        args = expand::arg_columns(&rows, &context);
        stacks = ["stack_id", "parent_stack_id"].map(|column| map.renumbered_stacks(&rows, column));
    }
    let [stack_ids, parent_stack_ids] = &stacks;
    let joined = JoinedEvents { category_id: category, stack_ids, parent_stack_ids, args: &args };
    take(expanded, Some(joined))
}
