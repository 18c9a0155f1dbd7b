use rpd_shard::model::Cells;

/// Start and end of a row; `None` without both, and where they are 146 years from 0, as no clock of a job is. So the
/// distance of any two is a number of ns.
#[inline]
pub fn row_times(start: &Cells, end: &Cells, i: usize) -> Option<(i64, i64)> {
    const MAX_NS: i64 = i64::MAX / 2;
    let is_time = |ns: &i64| (-MAX_NS..=MAX_NS).contains(ns);
    Some((start.int(i).filter(is_time)?, end.int(i).filter(is_time)?))
}
