//! Bytes of text that rows have in the output, where every row contains its own copy. A shard stores each text once
//! per block, so the output can be thousands of times as long as the block.

use crate::input::expand::{ARGS, MESSAGE_LIMIT, has_message, is_native, is_string};
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{Cells, Local, OwnedValue, Rows, TableId, TextCells, Value, rocpd};

/// Bytes of `{"message": ""}` as an event stores it.
const MESSAGE_BYTES: u64 = 14;
/// Maximum number of integers of a column that are sampled to estimate their digits.
const SAMPLED: usize = 256;

/// Returns the bytes of text of these rows, per table of the output. The length of integers that become text is
/// estimated.
pub(super) fn text_bytes(rows: &Rows<Local>, strings: &ShardStrings) -> Vec<(TableId, u64)> {
    if !is_native(rows.id()) {
        let texts = rows.columns.iter().map(of_cells).fold(0, u64::saturating_add);
        return vec![(rows.id(), texts)];
    }
    let text_of = |id: i64| strings.get(id).map_or(0, <[u8]>::len);
    let mut events = 0;
    if has_message(rows.id()) {
        let texts = each_text(rows.column("name_id"), rows.len, &|id| text_of(id).min(MESSAGE_LIMIT));
        events = texts.saturating_add(MESSAGE_BYTES * rows.len as u64);
    }
    let mut args = 0u64;
    for (column, name, kind) in ARGS {
        let cells = rows.column(column);
        let filled = cells.filled(rows.len) as u64;
        if filled == 0 {
            continue;
        }
        let values = match cells {
            Cells::Text(_) | Cells::Any(_) => of_cells(cells),
            _ if is_string(column) => each_text(cells, rows.len, &text_of),
            _ => digits(cells, rows.len).saturating_mul(filled),
        };
        args = args.saturating_add(values).saturating_add((name.len() + kind.len()) as u64 * filled);
    }
    vec![(rocpd::EVENT, events), (rocpd::ARG, args)]
}

/// Returns the bytes of the texts of a column.
fn of_cells(cells: &Cells) -> u64 {
    match cells {
        Cells::Text(text) => {
            let starts = std::iter::once(&0).chain(&text.ends);
            let lengths: Vec<u64> =
                text.ends.iter().zip(starts).map(|(end, start)| u64::from(end - start)).collect();
            let present = text.codes.iter().filter(|code| **code != TextCells::NULL);
            present.map(|code| lengths.get(*code as usize).copied().unwrap_or(0)).sum()
        }
        Cells::Any(values) => values.iter().map(of_value).sum(),
        Cells::Absent | Cells::Int { .. } | Cells::Real { .. } => 0,
    }
}

fn of_value(value: &OwnedValue) -> u64 {
    match value {
        OwnedValue::Text(text) | OwnedValue::Blob(text) => text.len() as u64,
        OwnedValue::Null | OwnedValue::Int(_) | OwnedValue::Real(_) => 0,
    }
}

/// Returns the bytes of the texts that a column of string ids refers to.
fn each_text(cells: &Cells, rows: usize, length: &dyn Fn(i64) -> usize) -> u64 {
    // Adjacent rows mostly have the same string.
    let (mut last, mut bytes) = ((0, 0), 0u64);
    for row in 0..rows {
        let Value::Int(id) = cells.get(row) else { continue };
        if last.0 != id {
            last = (id, length(id) as u64);
        }
        bytes = bytes.saturating_add(last.1);
    }
    bytes
}

/// Returns the average number of characters of a column's integers, estimated from a sample and rounded up.
fn digits(cells: &Cells, rows: usize) -> u64 {
    let step = rows.div_ceil(SAMPLED).max(1);
    let sampled = (0..rows).step_by(step).filter_map(|row| cells.int(row));
    let length =
        |value: i64| value.unsigned_abs().checked_ilog10().unwrap_or(0) as u64 + 1 + u64::from(value < 0);
    let (sum, count) = sampled.fold((0, 0), |(sum, count), value| (sum + length(value), count + 1u64));
    sum.div_ceil(count.max(1)).max(1)
}
