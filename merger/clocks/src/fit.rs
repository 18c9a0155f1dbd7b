use super::method::AlignMethod;
use super::time_map::TimeMap;
use rpd_shard::model::LocalNs;
use serde::{Deserialize, Serialize};

/// How one clock domain was aligned, and how well.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DomainFit {
    /// By what.
    pub method: AlignMethod,
    /// From the domain's BOOTTIME to the job's time.
    pub map: TimeMap,
    /// Bursts of probes on the domain's own links.
    pub probes: u64,
    /// Collectives in which the domain was compared with others.
    pub collectives: u64,
    /// Its collectives were left out: the probes show that they mislead.
    pub refuted: bool,
    /// Job time minus local time in the middle of what is known, ns.
    pub offset: i64,
    /// How much faster than the reference's the domain's BOOTTIME was, in parts per million.
    pub drift_ppm: f64,
    /// The bar over time, in order; empty for the reference, which has no error, and where nothing is known.
    pub bars: Vec<ErrorKnot>,
    /// Jumps of the domain's clock.
    pub steps: Vec<ClockStep>,
    /// Times at which hard bounds contradict each other: some observation is wrong.
    pub contradictions: u64,
}

/// What is known of the error at one time; straight between knots.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ErrorKnot {
    /// ns of the domain's BOOTTIME.
    pub local: i64,
    /// Job time minus local time, ns.
    pub offset: i64,
    /// The job time is this much off at most, in about 95 of 100 cases, ns.
    pub bar: i64,
    /// What the true job time minus the mapped one is at least and at most, for certain; ns. `None` if nothing is certain.
    pub hard: Option<(i64, i64)>,
    /// By how much the bar grows in a second if nothing more is known, ns.
    pub growth: i64,
}

/// A jump of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockStep {
    /// After this BOOTTIME of the domain, ns.
    pub after: i64,
    /// Before this one.
    pub before: i64,
    /// By how much the domain's clock went forward, ns.
    pub by: i64,
}

impl DomainFit {
    /// Nothing is known: times stay as they are.
    pub fn unknown() -> DomainFit {
        DomainFit {
            method: AlignMethod::None,
            map: TimeMap::identity(),
            probes: 0,
            collectives: 0,
            refuted: false,
            offset: 0,
            drift_ppm: 0.0,
            bars: Vec::new(),
            steps: Vec::new(),
            contradictions: 0,
        }
    }

    /// The reference: times stay as they are, and are right.
    pub(super) fn reference() -> DomainFit {
        DomainFit { method: AlignMethod::Reference, ..DomainFit::unknown() }
    }

    /// The bar at a time, ns: 0 for the reference, `None` if nothing is known. Beyond the first and
    /// the last observation it grows.
    pub fn bar_at(&self, time: LocalNs) -> Option<i64> {
        if self.method == AlignMethod::Reference {
            return Some(0);
        }
        let after = self.bars.partition_point(|b| b.local <= time.0);
        match (after.checked_sub(1).and_then(|i| self.bars.get(i)), self.bars.get(after)) {
            (Some(a), Some(b)) => {
                let share = (time.0 as f64 - a.local as f64) / (b.local as f64 - a.local as f64).max(1.0);
                Some((a.bar as f64 + (b.bar as f64 - a.bar as f64) * share).ceil() as i64)
            }
            (Some(end), None) | (None, Some(end)) => {
                let seconds = (i128::from(time.0) - i128::from(end.local)).unsigned_abs() as f64 / 1e9;
                let more = (seconds * end.growth as f64).ceil();
                Some(end.bar.saturating_add(more as i64))
            }
            (None, None) => None,
        }
    }

    /// What the job time is off at most at a time for certain, ns: never less than the bar. Beyond the first and the
    /// last observation it grows twice as fast, by four standard deviations of the rate. `None` where nothing is
    /// certain.
    pub fn hard_at(&self, time: LocalNs) -> Option<i64> {
        if self.method == AlignMethod::Reference {
            return Some(0);
        }
        let certain = |knot: &ErrorKnot| {
            let (low, high) = knot.hard?;
            Some(low.saturating_abs().max(high.saturating_abs()))
        };
        let after = self.bars.partition_point(|b| b.local <= time.0);
        let hard = match (after.checked_sub(1).and_then(|i| self.bars.get(i)), self.bars.get(after)) {
            (Some(a), Some(b)) => {
                let share = (time.0 as f64 - a.local as f64) / (b.local as f64 - a.local as f64).max(1.0);
                let (a, b) = (certain(a)? as f64, certain(b)? as f64);
                (a + (b - a) * share).ceil() as i64
            }
            (Some(end), None) | (None, Some(end)) => {
                let seconds = (i128::from(time.0) - i128::from(end.local)).unsigned_abs() as f64 / 1e9;
                certain(end)?.saturating_add((seconds * 2.0 * end.growth as f64).ceil() as i64)
            }
            (None, None) => return None,
        };
        // Nobody may be told that the bar is wider than what is certain.
        Some(hard.max(self.bar_at(time)?))
    }

    /// The middle one of the bars over time, ns; `None` if nothing is known.
    pub fn usual_bar(&self) -> Option<i64> {
        if self.method == AlignMethod::Reference {
            return Some(0);
        }
        let mut bars: Vec<i64> = self.bars.iter().map(|b| b.bar).collect();
        bars.sort_unstable();
        bars.get(bars.len() / 2).copied()
    }
}
