//! How long Perfetto takes to load a trace.

use rpd_tests::harness::TraceProcessor;
use rpd_tests::measure::median;
use std::path::Path;

/// Loads a trace with each version that is here, and prints how long that takes.
pub(crate) fn print(trace: &Path, rounds: usize) {
    for processor in TraceProcessor::all("the load time of traces") {
        let mut slices = 0;
        let mut complaints = 0;
        let seconds = (0..rounds).map(|_| {
            let (seconds, [counted, complained]) =
                processor.load(trace, ["SELECT count(*) FROM slice", TraceProcessor::COMPLAINTS]);
            slices = counted.first().and_then(|row| row.first()?.as_u64()).unwrap_or(0);
            complaints = complained.len();
            seconds
        });
        let seconds = median(seconds.collect::<Vec<f64>>().into_iter());
        println!(
            "  Perfetto {}: {seconds:.2} s to load {slices} slices, {:.2} M slices/s, {complaints} complaints",
            processor.version(),
            slices as f64 / seconds / 1e6
        );
    }
}
