//! Limit on the replies of an agent to other nodes.

use super::DEFAULT_RATE;
use std::str::FromStr;

/// Replies per second, as in `--probe-rate 10000`. At least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeRate(pub u32);

impl FromStr for ProbeRate {
    type Err = String;

    fn from_str(text: &str) -> Result<ProbeRate, String> {
        let rate = text.trim().parse().ok().filter(|rate| *rate > 0);
        rate.map(ProbeRate).ok_or_else(|| {
            let text: String = text.chars().take(100).collect();
            format!("{text:?} is not a number of replies per second; write an integer from 1 to 4294967295, as {DEFAULT_RATE}")
        })
    }
}
