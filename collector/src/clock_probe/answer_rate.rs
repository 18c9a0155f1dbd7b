//! Limit on the replies of an agent to other nodes.

use super::DEFAULT_RATE;
use std::str::FromStr;

/// Replies per second, as in `--probe-rate 10000`. At least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeRate(pub u32);

/// A text that is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a number of answers per second; write an integer from 1 to 4294967295, as {DEFAULT_RATE}"
)]
pub struct ProbeRateError(String);

impl FromStr for ProbeRate {
    type Err = ProbeRateError;

    fn from_str(text: &str) -> Result<ProbeRate, ProbeRateError> {
        let rate = text.trim().parse().ok().filter(|rate| *rate > 0);
        rate.map(ProbeRate).ok_or_else(|| ProbeRateError(text.chars().take(100).collect()))
    }
}
