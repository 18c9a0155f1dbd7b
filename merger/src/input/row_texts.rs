//! Bytes of text that rows have in the output, where every row has its texts written out. A shard stores each text
//! once per block, so they can be thousands of times as long as the block.

use super::expand::{ARGS, MESSAGE_LIMIT, has_message, is_native};
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{Cells, Local, OwnedValue, Rows, TableId, TextCells, Value, rocpd};

/// Bytes of `{"message": ""}` as an event has it.
const MESSAGE_BYTES: u64 = 14;
/// Integers of a column that are looked at for the number of their digits.
const SAMPLED: usize = 256;

/// The bytes of text of these rows, per table of the output. Of integers that become text they are estimated.
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
        let values = match column.ends_with("_id") {
            true => each_text(cells, rows.len, &text_of),
            false => digits(cells, rows.len).saturating_mul(filled),
        };
        args = args.saturating_add(values).saturating_add((name.len() + kind.len()) as u64 * filled);
    }
    vec![(rocpd::EVENT, events), (rocpd::ARG, args)]
}

/// Bytes of the texts of a column.
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

/// Bytes of the texts that a column of string ids stands for.
fn each_text(cells: &Cells, rows: usize, length: &dyn Fn(i64) -> usize) -> u64 {
    // Neighbours mostly have the same one.
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

/// Characters of an integer of this column, on the average of some of them, rounded up.
fn digits(cells: &Cells, rows: usize) -> u64 {
    let step = rows.div_ceil(SAMPLED).max(1);
    let sampled = (0..rows).step_by(step).filter_map(|row| cells.int(row));
    let length =
        |value: i64| value.unsigned_abs().checked_ilog10().unwrap_or(0) as u64 + 1 + u64::from(value < 0);
    let (sum, count) = sampled.fold((0, 0), |(sum, count), value| (sum + length(value), count + 1u64));
    sum.div_ceil(count.max(1)).max(1)
}
