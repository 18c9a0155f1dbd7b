use rpd_shard::model::Cells;

/// Returns the start and the end of a row. Returns `None` if one is missing or more than 146 years from 0, which
/// no clock of a job shows. The difference of any two times thus fits into an `i64`.
#[inline]
pub fn row_times(start: &Cells, end: &Cells, i: usize) -> Option<(i64, i64)> {
    const MAX_NS: i64 = i64::MAX / 2;
    let is_time = |ns: &i64| (-MAX_NS..=MAX_NS).contains(ns);
    Some((start.int(i).filter(is_time)?, end.int(i).filter(is_time)?))
}
