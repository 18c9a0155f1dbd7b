//! Distributions of durations, and times during which anything happens.

mod distribution;
mod intervals;

pub(crate) use distribution::{Distribution, DurationSummary};
pub(crate) use intervals::{IntervalUnion, length, overlap};
