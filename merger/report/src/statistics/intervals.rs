//! Unions of intervals.

use serde::{Deserialize, Serialize};

/// Number of new intervals from which on they are joined with the others.
const MIN_JOINED: usize = 1 << 16;

/// Times that at least one of several intervals contains.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct IntervalUnion {
    /// Start and end of each interval. The first `joined` ones ascend and do not touch.
    intervals: Vec<(i64, i64)>,
    joined: usize,
}

impl IntervalUnion {
    /// Adds the times from `start` to before `end`.
    #[inline]
    pub(crate) fn add(&mut self, start: i64, end: i64) {
        if start < end {
            self.intervals.push((start, end));
            if self.intervals.len() > (self.joined * 2).max(MIN_JOINED) {
                self.join_touching();
            }
        }
    }

    /// Adds the times of another union.
    pub(crate) fn join(&mut self, other: IntervalUnion) {
        self.intervals.extend(other.intervals);
        self.join_touching();
    }

    fn join_touching(&mut self) {
        self.intervals.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::new();
        for (start, end) in self.intervals.drain(..) {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        self.joined = joined.len();
        self.intervals = joined;
    }

    /// Returns the length of the times, ns.
    pub(crate) fn length(self) -> i64 {
        length(&self.into_intervals())
    }

    /// Returns the times as intervals, which ascend and do not touch.
    pub(crate) fn into_intervals(mut self) -> Vec<(i64, i64)> {
        self.join_touching();
        self.intervals
    }
}

/// Returns the length of intervals that do not overlap, ns.
pub(crate) fn length(intervals: &[(i64, i64)]) -> i64 {
    intervals.iter().map(|(start, end)| end.saturating_sub(*start)).fold(0, i64::saturating_add)
}

/// Returns the length of the times that are in both, ns. The intervals of each ascend and do not touch.
pub(crate) fn overlap(one: &[(i64, i64)], other: &[(i64, i64)]) -> i64 {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut sum = 0i64;
    while let (Some(&&(start, end)), Some(&&(other_start, other_end))) = (one.peek(), other.peek()) {
        sum = sum.saturating_add((end.min(other_end) - start.max(other_start)).max(0));
        let ended = if end <= other_end { one.next() } else { other.next() };
        debug_assert!(ended.is_some());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_times_count_once() {
        let of = |all: &[(i64, i64)]| {
            let mut union = IntervalUnion::default();
            all.iter().for_each(|(start, end)| union.add(*start, *end));
            union
        };
        assert_eq!(of(&[]).length(), 0);
        assert_eq!(of(&[(5, 9), (1, 3), (2, 4), (9, 10), (6, 7), (8, 2)]).length(), 8);
        let mut union = of(&[(0, 10)]);
        union.join(of(&[(5, 12), (20, 21)]));
        assert_eq!(union.length(), 13);
        let mut many = IntervalUnion::default();
        (0..300_000).for_each(|n| many.add(n % 1_000 * 10, n % 1_000 * 10 + 7));
        assert!(many.intervals.len() <= MIN_JOINED);
        assert_eq!(many.length(), 7_000);
    }
}
