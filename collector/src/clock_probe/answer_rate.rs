//! How many questions of others an agent answers.

use super::DEFAULT_RATE;
use std::str::FromStr;

/// Answers a second, as `--probe-rate 10000` gives them: at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeRate(pub u32);

/// Text that is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number of answers a second: write a whole one of 1 to 4294967295, as {DEFAULT_RATE}")]
pub struct ProbeRateError(String);

impl FromStr for ProbeRate {
    type Err = ProbeRateError;

    fn from_str(text: &str) -> Result<ProbeRate, ProbeRateError> {
        let rate = text.trim().parse().ok().filter(|rate| *rate > 0);
        rate.map(ProbeRate).ok_or_else(|| ProbeRateError(text.chars().take(100).collect()))
    }
}
