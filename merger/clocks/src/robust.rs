//! Statistics that are robust against a few wrong values. No result depends on the order of the values.

/// Factor from a median absolute deviation to the standard deviation of a normal distribution.
pub(super) const DEVIATION: f64 = 1.4826;

/// Returns the median; `None` for an empty slice. Reorders `values`.
pub fn median(values: &mut [f64]) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let (_, &mut at, above) = values.select_nth_unstable_by(last / 2, f64::total_cmp);
    let next = above.iter().copied().min_by(f64::total_cmp).unwrap_or(at);
    Some(at + (next - at) * if last % 2 == 0 { 0.0 } else { 0.5 })
}

/// Returns the standard deviation, estimated from the median absolute deviation from `middle`. Overwrites
/// `values`.
pub(super) fn deviation(values: &mut [f64], middle: f64) -> f64 {
    values.iter_mut().for_each(|v| *v = (*v - middle).abs());
    median(values).unwrap_or(0.0) * DEVIATION
}

/// Returns the Theil-Sen slope of pairs of points that are half the series apart; 0 if it is undefined. `points`
/// must be sorted by their first number.
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
