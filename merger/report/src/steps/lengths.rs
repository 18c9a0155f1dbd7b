//! Which steps stand out by their length.

use std::ops::Range;

/// An outlier exceeds the median by more than so many standard deviations, as the median deviation estimates them.
const MIN_DEVIATIONS: f64 = 6.0;
/// It also exceeds the median by more than this share of it.
const MIN_EXCESS: f64 = 0.05;
/// Standard deviations in a median deviation, of a normal distribution.
const DEVIATIONS_IN_MEDIAN: f64 = 0.6745;

/// What stands out in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StepFlag {
    First,
    Longest,
    Outlier,
}

impl StepFlag {
    pub(super) fn name(self) -> &'static str {
        match self {
            StepFlag::First => "first",
            StepFlag::Longest => "longest",
            StepFlag::Outlier => "outlier",
        }
    }
}

/// The lengths of all steps.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct StepLengths {
    ns: Vec<u64>,
    longest: Option<usize>,
    /// Length above which a step is an outlier, ns.
    limit_ns: f64,
}

impl StepLengths {
    pub(super) fn new(ns: Vec<u64>) -> StepLengths {
        let longest = (0..ns.len()).max_by_key(|step| (ns[*step], std::cmp::Reverse(*step)));
        let median_ns = median(ns.clone());
        let deviation = median(ns.iter().map(|length| length.abs_diff(median_ns)).collect());
        let spread = MIN_DEVIATIONS / DEVIATIONS_IN_MEDIAN * deviation as f64;
        let limit_ns = median_ns as f64 + spread.max(MIN_EXCESS * median_ns as f64);
        StepLengths { ns, longest, limit_ns }
    }

    /// Returns the length of each step, ns.
    pub(super) fn all_ns(&self) -> &[u64] {
        &self.ns
    }

    /// Returns what stands out in some steps.
    pub(super) fn flags(&self, steps: Range<u32>) -> Vec<StepFlag> {
        let steps = steps.start as usize..steps.end as usize;
        let lengths = self.ns.get(steps.clone()).unwrap_or_default();
        let flags = [
            (StepFlag::First, steps.contains(&0)),
            (StepFlag::Longest, self.longest.is_some_and(|longest| steps.contains(&longest))),
            (StepFlag::Outlier, lengths.iter().any(|length| *length as f64 > self.limit_ns)),
        ];
        flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect()
    }
}

/// Returns the lower median; 0 of nothing.
pub(super) fn median(mut values: Vec<u64>) -> u64 {
    let Some(last) = values.len().checked_sub(1) else { return 0 };
    *values.select_nth_unstable(last / 2).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_are_far_from_the_others_and_much_longer() {
        use StepFlag::{First, Longest, Outlier};
        let noisy = |step: u64| 1_000 + step * 7_919 % 21;
        let mut ns: Vec<u64> = (0..50).map(noisy).collect();
        (ns[7], ns[20], ns[30]) = (1_049, 1_500, 9_000);
        let lengths = StepLengths::new(ns);
        let flags = |step: u32| lengths.flags(step..step + 1);
        assert_eq!(flags(0), [First]);
        assert_eq!(flags(7), [], "less than 5 % longer");
        assert_eq!((flags(20), flags(30)), (vec![Outlier], vec![Longest, Outlier]));
        assert_eq!(lengths.flags(0..40), [First, Longest, Outlier]);
        // In noise of 30 % nothing stands out by 20 %.
        let wide = StepLengths::new((0..50).map(|step| 1_000 + step * 7_919 % 601).collect());
        assert!((1..50).all(|step| !wide.flags(step..step + 1).contains(&Outlier)));
        assert_eq!(StepLengths::new(vec![5]).flags(0..1), [First, Longest]);
        assert_eq!(StepLengths::new(Vec::new()).flags(0..0), []);
    }
}
