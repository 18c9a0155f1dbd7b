//! Shares of the time of threads, by intervals.

use crate::few_intervals::few_intervals;
use serde::{Deserialize, Serialize};

/// Number of intervals of a thread from which on neighbours are joined.
pub(crate) const MAX_INTERVALS: usize = 512;

/// A share of the time until the time of the next one. The last one has no end and no meaning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuShare {
    /// Start, ns in job time.
    pub start_ns: i64,
    /// The share: 1 is all of the time.
    pub share: f64,
}

/// Returns values between two times, each with the length of its interval there, ns. A value lasts until the start of the
/// next one, and the last one has no end.
pub(crate) fn values_between<T>(
    values: &[T],
    start_ns: impl Fn(&T) -> i64,
    from: i64,
    to: i64,
) -> impl Iterator<Item = (&T, f64)> {
    values.windows(2).filter_map(move |pair| {
        let (start, end) = (start_ns(&pair[0]).max(from), start_ns(&pair[1]).min(to));
        (start < end).then(|| (&pair[0], end.abs_diff(start) as f64))
    })
}

/// Returns the time of shares between two times, and how much of that is known, ns.
pub(crate) fn time_between(shares: &[CpuShare], from: i64, to: i64) -> (f64, f64) {
    values_between(shares, |share| share.start_ns, from, to)
        .fold((0.0, 0.0), |(time, known), (of, length)| (time + of.share * length, known + length))
}

/// Orders shares by time. Of several at one time, the smallest remains.
pub(crate) fn in_order(mut shares: Vec<CpuShare>) -> Vec<CpuShare> {
    shares.sort_by(|one, other| one.start_ns.cmp(&other.start_ns).then(one.share.total_cmp(&other.share)));
    shares.dedup_by_key(|share| share.start_ns);
    shares
}

/// Orders intervals by time, and joins neighbours until there are `most` or fewer. Their sum stays the same.
pub(crate) fn in_few_intervals(shares: Vec<CpuShare>, most: usize) -> Vec<CpuShare> {
    let intervals = in_order(shares).into_iter().map(|share| (share.start_ns, [share.share]));
    let few = few_intervals(intervals.collect(), most, [1.0]).into_iter();
    few.map(|(start_ns, [share])| CpuShare { start_ns, share }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_intervals_keep_their_sum() {
        let mut waits: Vec<CpuShare> =
            (0..5001).map(|at: i64| CpuShare { start_ns: at * at, share: (at % 7) as f64 / 10.0 }).collect();
        let sum = |waits: &[CpuShare]| -> f64 {
            waits.windows(2).map(|pair| pair[0].share * (pair[1].start_ns - pair[0].start_ns) as f64).sum()
        };
        let expected = sum(&waits);
        waits.reverse();
        let few = in_few_intervals(waits, MAX_INTERVALS);
        assert!(few.len() <= MAX_INTERVALS && few.len() > MAX_INTERVALS / 2, "{}", few.len());
        assert_eq!((few[0].start_ns, few.last().unwrap().start_ns), (0, 25_000_000));
        assert!((sum(&few) / expected - 1.0).abs() < 1e-9, "{} instead of {expected}", sum(&few));
    }

    #[test]
    fn a_short_change_in_a_long_time_stays_where_it_is() {
        // Ten minutes at ten values a second, which differ a little, and 40 ms without a CPU, three times.
        let mut waits: Vec<CpuShare> = (0..6000)
            .map(|at: i64| CpuShare { start_ns: at * 100_000_000, share: (at * 7 % 11) as f64 / 1000.0 })
            .collect();
        let missing = [77_030_000_000, 300_050_000_000, 599_010_000_000];
        for start_ns in missing {
            waits.push(CpuShare { start_ns, share: 1.0 });
            waits.push(CpuShare { start_ns: start_ns + 40_000_000, share: 0.0 });
        }
        let few = in_few_intervals(waits, MAX_INTERVALS);
        assert_eq!(few.len(), MAX_INTERVALS);
        for start_ns in missing {
            let (time, known) = time_between(&few, start_ns, start_ns + 40_000_000);
            assert_eq!((time, known), (4e7, 4e7));
            assert!(time_between(&few, start_ns - 20_000_000, start_ns).0 < 1e6);
        }
    }

    #[test]
    fn long_lists_are_joined_by_likeness_too() {
        let value = |at: i64| CpuShare { start_ns: at * 1_000_000, share: (at * 7 % 11) as f64 / 1000.0 };
        let mut waits: Vec<CpuShare> = (0..200_000).map(value).collect();
        waits[65_536].share = 1.0;
        waits[123_456].share = 1.0;
        let few = in_few_intervals(waits, MAX_INTERVALS);
        assert_eq!((few.len(), few[0].start_ns, few[511].start_ns), (MAX_INTERVALS, 0, 199_999_000_000));
        for start_ns in [65_536_000_000, 123_456_000_000] {
            assert_eq!(time_between(&few, start_ns, start_ns + 1_000_000), (1e6, 1e6));
        }
    }

    #[test]
    fn shares_count_where_they_are_known() {
        let waits = [(100, 0.5), (200, 0.0), (300, 1.0), (400, 0.0)];
        let waits = waits.map(|(start_ns, share)| CpuShare { start_ns, share });
        assert_eq!(time_between(&waits, 0, 1000), (150.0, 300.0));
        assert_eq!(time_between(&waits, 150, 310), (35.0, 160.0));
        assert_eq!(time_between(&waits, 400, 500), (0.0, 0.0));
        assert_eq!(time_between(&[], 0, 500), (0.0, 0.0));
    }
}
