use super::method::AlignMethod;
use super::time_map::TimeMap;
use rpd_shard::model::LocalNs;
use serde::{Deserialize, Serialize};

/// How one clock domain was aligned, and how accurately. By default it is not aligned, and times stay unchanged.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DomainFit {
    /// Source of the alignment.
    pub method: AlignMethod,
    /// Maps the domain's BOOTTIME to job time.
    pub map: TimeMap,
    /// Number of probe bursts on the domain's own links.
    pub probes: u64,
    /// Number of collectives in which the domain was compared with others.
    pub collectives: u64,
    /// Whether the domain's collectives were discarded because probes show that they mislead.
    pub refuted: bool,
    /// Job time minus local time at the middle knot, ns.
    pub offset: i64,
    /// How much faster the domain's BOOTTIME ran than the reference's, ppm.
    pub drift_ppm: f64,
    /// Error bound over time, in order. Empty for the reference, which has no error, and for unaligned domains.
    pub bars: Vec<ErrorKnot>,
    /// Steps of the domain's clock.
    pub steps: Vec<ClockStep>,
    /// Number of times at which certain bounds contradict each other, so that some observation is wrong.
    pub contradictions: u64,
}

/// Error at one time. Between two knots the error is interpolated linearly.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ErrorKnot {
    /// Time, ns of the domain's BOOTTIME.
    pub local: i64,
    /// Job time minus local time, ns.
    pub offset: i64,
    /// Error bound, ns: the error of the job time is at most this in about 95 % of cases.
    pub bar: i64,
    /// Certain bounds: minimum and maximum of the true job time minus the mapped one, ns. `None` if there are
    /// none.
    pub certain_bounds: Option<(i64, i64)>,
    /// Growth of the error bound beyond the observations, ns per second.
    pub growth: i64,
}

/// A step of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockStep {
    /// The step is after this BOOTTIME of the domain, ns.
    pub after: i64,
    /// The step is before this BOOTTIME, ns.
    pub before: i64,
    /// How far the domain's clock stepped forward, ns.
    pub by: i64,
}

impl DomainFit {
    /// Returns the error bound at a time, ns: 0 for the reference, `None` for an unaligned domain. Before the
    /// first and after the last observation it grows.
    pub fn bar_at(&self, time: LocalNs) -> Option<i64> {
        self.bound_at(time, 1.0, |knot| Some(knot.bar))
    }

    /// Returns the certain bound at a time, ns: never less than the error bound, `None` if there is none.
    ///
    /// Before the first and after the last observation it grows twice as fast as the error bound, by four
    /// standard deviations of the rate.
    pub fn certain_bound_at(&self, time: LocalNs) -> Option<i64> {
        let certain = self.bound_at(time, 2.0, |knot| {
            let (low, high) = knot.certain_bounds?;
            Some(low.saturating_abs().max(high.saturating_abs()))
        });
        // The error bound must never exceed the certain bound.
        Some(certain?.max(self.bar_at(time)?))
    }

    /// Interpolates a bound of the knots. Beyond them it grows by `growths` times their growth.
    fn bound_at(
        &self,
        time: LocalNs,
        growths: f64,
        bound: impl Fn(&ErrorKnot) -> Option<i64>,
    ) -> Option<i64> {
        if self.method == AlignMethod::Reference {
            return Some(0);
        }
        let after = self.bars.partition_point(|b| b.local <= time.0);
        match (after.checked_sub(1).and_then(|i| self.bars.get(i)), self.bars.get(after)) {
            (Some(a), Some(b)) => {
                let share = (time.0 as f64 - a.local as f64) / (b.local as f64 - a.local as f64).max(1.0);
                let (a, b) = (bound(a)? as f64, bound(b)? as f64);
                Some((a + (b - a) * share).ceil() as i64)
            }
            (Some(end), None) | (None, Some(end)) => {
                let seconds = (i128::from(time.0) - i128::from(end.local)).unsigned_abs() as f64 / 1e9;
                Some(bound(end)?.saturating_add((seconds * growths * end.growth as f64).ceil() as i64))
            }
            (None, None) => None,
        }
    }

    /// Returns the median error bound over time, ns; `None` for an unaligned domain.
    pub fn median_error_bound(&self) -> Option<i64> {
        if self.method == AlignMethod::Reference {
            return Some(0);
        }
        let mut bars: Vec<i64> = self.bars.iter().map(|b| b.bar).collect();
        bars.sort_unstable();
        bars.get(bars.len() / 2).copied()
    }
}
