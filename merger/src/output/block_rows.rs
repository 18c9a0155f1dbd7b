//! Rows of one block of a shard.

use super::provenance;
use crate::input::expand::ExpansionContext;
use crate::input::{ExpandedKeys, RowOrigin, block_rows, expand, vanished_input};
use crate::number::{ReplacedValues, SourceMap};
use rpd_console::Failure;
use rpd_shard::Shard;
use rpd_shard::file::{BlockRef, ShardStrings};
use rpd_shard::model::{Merged, Rows};

/// Number of native rows that are expanded at once; their results stay in a core's cache.
const EXPANDED_AT_ONCE: usize = 2_048;

/// Callback that receives rows.
pub(super) type TakeMergedRows<'a> = dyn FnMut(&Rows<Merged>) -> Result<(), Failure> + 'a;

/// Passes the rows of a block to `take`; native rows are expanded in portions.
pub(super) fn take_block(
    shard: &Shard,
    block: &BlockRef,
    keys: Option<&ExpandedKeys>,
    map: &SourceMap<'_>,
    texts: &ShardStrings,
    replaced: &mut ReplacedValues,
    take: &mut TakeMergedRows<'_>,
) -> Result<(), Failure> {
    let rows = block_rows(shard, &map.source.tables, block);
    let rows = rows.map_err(|error| vanished_input(shard.path(), &error.cause))?;
    let Some(keys) = keys else {
        let handles = block.header.handles.then(|| rows.keys.clone());
        let mut merged = map.renumber(rows, RowOrigin::Stored, replaced);
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
        map.renumber_stack_args(&mut portion, replaced);
        let expanded = expand::expand(&portion, &keys, &context, replaced);
        for (table, rows) in expand::counts(&portion) {
            keys.advance(table, rows as i64);
        }
        for rows in expanded {
            take(&map.renumber(rows, RowOrigin::Expanded, replaced))?;
        }
    }
    Ok(())
}
