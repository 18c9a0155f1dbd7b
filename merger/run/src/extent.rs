//! When a job was, whatever of it is drawn: traces of some of its ranks have the times of those of all.

use super::row_times::row_times;
use super::tables::{IdRanges, RunTables};
use rayon::prelude::*;
use rpd_console::Failure;
use rpd_shard::model::{TableId, rocpd};

/// Tables whose rows have times, and where these stand.
const TIMED: [(TableId, &[&str]); 5] = [
    (rocpd::REGION, &["start", "end"]),
    (rocpd::SAMPLE, &["timestamp"]),
    (rocpd::KERNEL_DISPATCH, &["start", "end"]),
    (rocpd::MEMORY_COPY, &["start", "end"]),
    (rocpd::MEMORY_ALLOCATE, &["start", "end"]),
];

/// First and last time of all rows, ns in the clock of the job; of every so many pieces one, so that as many ranks
/// read all of them together.
pub(crate) fn extent(tables: &RunTables, rank: usize, ranks: usize) -> Result<Option<(i64, i64)>, Failure> {
    let every = IdRanges::range(i64::MIN, i64::MAX);
    let mut pieces = Vec::new();
    for (table, columns) in TIMED {
        pieces.extend(tables.within(table, &every)?.into_iter().map(|piece| (table, columns, piece)));
    }
    let mine: Vec<_> = pieces.into_iter().skip(rank).step_by(ranks.max(1)).collect();
    let of_piece = |(table, columns, piece): (TableId, &'static [&'static str], usize)| {
        let mut found: Option<(i64, i64)> = None;
        tables.each(table, piece, &every, columns, &mut |rows, places| {
            let (start, end) = (columns.first(), columns.last());
            let (Some(start), Some(end)) =
                (start.map(|name| rows.column(name)), end.map(|name| rows.column(name)))
            else {
                return Ok(());
            };
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

/// What holds both.
fn join(one: Option<(i64, i64)>, other: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        _ => one.or(other),
    }
}
