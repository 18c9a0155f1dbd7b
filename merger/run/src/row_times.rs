use rpd_shard::model::IntColumn;

/// Returns the start and the end of a row. Returns `None` if one is missing or no time, see [`is_row_time`].
#[inline]
pub fn row_times(start: IntColumn<'_>, end: IntColumn<'_>, i: usize) -> Option<(i64, i64)> {
    let time = |column: IntColumn<'_>| column.at(i).filter(|ns| is_row_time(*ns));
    Some((time(start)?, time(end)?))
}

/// Returns whether rows may have a time. One more than 146 years from 0 no clock of a job shows. The difference of any
/// two times thus fits into an `i64`.
#[inline]
pub fn is_row_time(ns: i64) -> bool {
    const MAX_NS: i64 = i64::MAX / 2;
    (-MAX_NS..=MAX_NS).contains(&ns)
}
