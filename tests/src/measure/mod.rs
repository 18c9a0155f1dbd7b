//! What benchmarks need besides the programs.

mod interval;
mod machine;
mod peak;

pub use interval::{ProportionInterval, RatioInterval};
pub use machine::machine;
pub use peak::{family, peak_of_merge_ranks, peaks_of_merge_ranks};

/// The median of some values, NaN where there are none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 if middle > 0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values.get(middle).copied().unwrap_or(f64::NAN),
    }
}
