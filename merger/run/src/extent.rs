//! Computes the time span of a run from all its rows, so that traces of some ranks have the same times as traces
//! of all.

use super::row_times::row_times;
use super::tables::{IdRanges, RunTables};
use rayon::prelude::*;
use rpd_console::Failure;
use rpd_shard::model::{IntColumn, TableId, rocpd};

/// Tables of rows with times, and the columns of start and end.
const TIMED_TABLES: [(TableId, &[&str; 2]); 5] = [
    (rocpd::REGION, &["start", "end"]),
    (rocpd::SAMPLE, &["timestamp", "timestamp"]),
    (rocpd::KERNEL_DISPATCH, &["start", "end"]),
    (rocpd::MEMORY_COPY, &["start", "end"]),
    (rocpd::MEMORY_ALLOCATE, &["start", "end"]),
];

/// Returns the first and the last time of the rows, ns in job time. Each of the `ranks` merge ranks reads every
/// `ranks`th piece.
pub(crate) fn extent(tables: &RunTables, rank: usize, ranks: usize) -> Result<Option<(i64, i64)>, Failure> {
    let mut pieces = Vec::new();
    for (table, columns) in TIMED_TABLES {
        pieces.extend(
            tables.pieces_with(table, &IdRanges::all())?.into_iter().map(|piece| (table, columns, piece)),
        );
    }
    let mine: Vec<_> = pieces.into_iter().skip(rank).step_by(ranks.max(1)).collect();
    let of_piece = |(table, columns, piece): (TableId, &'static [&'static str; 2], usize)| {
        let [start, end] = *columns;
        let mut found: Option<(i64, i64)> = None;
        tables.read_pieces(table, &[piece], &IdRanges::all(), columns, &mut |_, rows, places| {
            let [start, end] = [start, end].map(|column| IntColumn::of(rows.column(column)));
            for i in places {
                let Some((start, end)) = row_times(start, end, i) else { continue };
                found = join(found, Some((start, start.max(end))));
            }
            Ok(())
        })?;
        Ok(found)
    };
    mine.into_par_iter().map(of_piece).try_reduce(|| None, |a, b| Ok(join(a, b)))
}

/// Returns the span that contains both.
fn join(one: Option<(i64, i64)>, other: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        _ => one.or(other),
    }
}
