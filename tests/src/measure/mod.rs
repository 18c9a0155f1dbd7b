//! What benchmarks need besides the programs.

mod interval;
mod machine;
mod peak;

pub use interval::{ProportionInterval, RatioInterval};
pub use machine::machine;
pub use peak::{family, peak_of_merge_ranks, peak_of_process, peaks_of_merge_ranks};

use std::error::Error;
use std::process::ExitCode;

/// The exit code of a benchmark. Prints the error of a failed one.
pub fn exit_code(benchmark: &str, outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{benchmark}: {error}");
            ExitCode::FAILURE
        }
    }
}

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
