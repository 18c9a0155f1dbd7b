//! A share of the time of threads, estimated from samples.

/// Quantile of the normal distribution for an interval of 95 %.
const QUANTILE: f64 = 1.96;

/// A share with its error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SampledShare {
    /// The share; it may exceed 1 if it is one of the longer work.
    pub(crate) share: f64,
    /// The larger part of its 95 % interval.
    pub(crate) error: f64,
}

impl SampledShare {
    /// Estimates the error of a share that was found in a number of samples, by Wilson's method.
    pub(crate) fn of_samples(share: f64, samples: f64) -> SampledShare {
        let (low, high) = wilson_interval(share, samples);
        SampledShare { share, error: (high - share).max(share - low) }
    }
}

/// Returns the 95 % interval of a share that was found in a number of samples.
fn wilson_interval(share: f64, samples: f64) -> (f64, f64) {
    let square = QUANTILE * QUANTILE / samples.max(1.0);
    let variance = share * (1.0 - share) / samples.max(1.0) + square / (4.0 * samples.max(1.0));
    let (middle, half) = (share + square / 2.0, QUANTILE * variance.max(0.0).sqrt());
    (((middle - half) / (1.0 + square)).max(0.0), ((middle + half) / (1.0 + square)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_wilson() {
        // Newcombe (1998), table I: 81 of 263 and 0 of 20.
        let near = |(low, high): (f64, f64), expected: (f64, f64)| {
            assert!((low - expected.0).abs() < 1e-4 && (high - expected.1).abs() < 1e-4, "{low} {high}");
        };
        near(wilson_interval(81.0 / 263.0, 263.0), (0.2553, 0.3662));
        near(wilson_interval(0.0, 20.0), (0.0, 0.1611));
        near(wilson_interval(1.0 / 29.0, 29.0), (0.0061, 0.1718));
    }
}
