//! Statistics that a few wrong values do not move. None of them depends on the order of the values.

/// Turns a median absolute deviation into the standard deviation of a normal distribution.
pub(super) const DEVIATION: f64 = 1.4826;

/// The median; reorders `values`. `None` of none.
pub fn median(values: &mut [f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value that a share of the values is below; reorders `values`. `None` of none.
pub(super) fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let place = last as f64 * share;
    let low = place.floor() as usize;
    let (_, &mut at, above) = values.select_nth_unstable_by(low.min(last), f64::total_cmp);
    let next = above.iter().copied().min_by(f64::total_cmp).unwrap_or(at);
    Some(at + (next - at) * (place - low as f64))
}

/// Standard deviation, from the median absolute deviation from `middle`; overwrites `values`.
pub(super) fn deviation(values: &mut [f64], middle: f64) -> f64 {
    values.iter_mut().for_each(|v| *v = (*v - middle).abs());
    median(values).unwrap_or(0.0) * DEVIATION
}

/// Slope after Theil and Sen, of the pairs of points that are half the series apart. `points` are sorted
/// by their first number; 0 where they do not tell.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let (early, late) = points.split_at(points.len() / 2);
    let mut slopes: Vec<f64> = early
        .iter()
        .zip(late)
        .map(|(a, b)| (b.1 - a.1) / (b.0 - a.0))
        .filter(|slope| slope.is_finite())
        .collect();
    median(&mut slopes).unwrap_or(0.0)
}
