//! Joins intervals with values of counters until there are few.

use std::array;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// All neighbours are compared once there are at most this many times as many intervals as shall remain. Longer lists are first halved
/// in parts of that length, which takes less memory.
const COMPARED: usize = 64;

/// Joins neighbours among intervals in order until there are few: those that are most alike first, so that short changes stay
/// where they are. `weights` say how much a difference of each value counts. The sums of the values stay the same. The last interval
/// has no end and no meaning.
pub(crate) fn few_intervals<const N: usize>(
    mut intervals: Vec<(i64, [f64; N])>,
    max_intervals: usize,
    weights: [f64; N],
) -> Vec<(i64, [f64; N])> {
    let compared = max_intervals.saturating_mul(COMPARED);
    while intervals.len() > compared {
        // Each part has the start of the next one as its end, which is joined with nothing.
        let starts = (0..intervals.len() - 1).step_by(compared);
        let parts = starts.map(|start| &intervals[start..(start + compared + 1).min(intervals.len())]);
        let halves = parts.map(|part| without_alike(part, part.len() / 2 + 1, weights));
        let last = intervals.last().copied();
        intervals = halves.flat_map(without_last).chain(last).collect();
    }
    if intervals.len() > max_intervals {
        intervals = without_alike(&intervals, max_intervals, weights);
    }
    intervals.shrink_to_fit();
    intervals
}

fn without_last<T>(mut list: Vec<T>) -> Vec<T> {
    list.pop();
    list
}

/// Joins the two neighbours that are most alike, again and again.
fn without_alike<const N: usize>(
    intervals: &[(i64, [f64; N])],
    most: usize,
    weights: [f64; N],
) -> Vec<(i64, [f64; N])> {
    let lengths = intervals.windows(2).map(|pair| pair[1].0.abs_diff(pair[0].0) as f64);
    // The last one has no length, and is not joined.
    let mut parts: Vec<JoinedInterval<N>> = intervals
        .iter()
        .zip(lengths)
        .map(|((_, values), length)| JoinedInterval::new(*values, length))
        .collect();
    let mut next: Vec<usize> = (1..=parts.len()).collect();
    let mut before: Vec<usize> = (0..parts.len()).map(|at| at.wrapping_sub(1)).collect();
    let pair = |parts: &[JoinedInterval<N>], at: usize, other: usize| {
        Reverse(AlikePair::of(parts, at, other, &weights))
    };
    let mut alike: BinaryHeap<Reverse<AlikePair>> =
        (1..parts.len()).map(|at| pair(&parts, at - 1, at)).collect();
    let mut left = parts.len();
    while left + 1 > most
        && let Some(Reverse(AlikePair { first: at, second: other, versions, .. })) = alike.pop()
    {
        if [at, other].map(|place| parts[place].version) != versions {
            continue;
        }
        parts[at] = parts[at].with(&parts[other]);
        parts[other].version = JOINED;
        next[at] = next[other];
        left -= 1;
        if let Some(following) = before.get_mut(next[at]) {
            *following = at;
            alike.push(pair(&parts, at, next[at]));
        }
        if before[at] < at {
            alike.push(pair(&parts, before[at], at));
        }
    }
    let kept = intervals.iter().zip(&parts).filter(|(_, part)| part.version != JOINED);
    kept.map(|((start_ns, _), part)| (*start_ns, part.values)).chain(intervals.last().copied()).collect()
}

/// Version of a part that was joined with the one before it.
const JOINED: u32 = u32::MAX;

/// Intervals that were joined.
#[derive(Clone, Copy)]
struct JoinedInterval<const N: usize> {
    values: [f64; N],
    length: f64,
    /// Number of times that another one was joined to it.
    version: u32,
}

impl<const N: usize> JoinedInterval<N> {
    fn new(values: [f64; N], length: f64) -> JoinedInterval<N> {
        JoinedInterval { values, length, version: 0 }
    }

    fn with(&self, other: &JoinedInterval<N>) -> JoinedInterval<N> {
        let values = means(&self.values, &other.values, [self.length, other.length]);
        JoinedInterval { values, length: self.length + other.length, version: self.version + 1 }
    }

    /// How much both would change if they were joined.
    fn difference(&self, other: &JoinedInterval<N>, weights: &[f64; N]) -> f64 {
        let length = self.length * other.length / (self.length + other.length).max(1.0);
        let values = self.values.iter().zip(&other.values).zip(weights);
        values.map(|((one, other), weight)| (one - other).abs() * weight).sum::<f64>() * length
    }
}

/// Two neighbours at some time.
struct AlikePair {
    difference: f64,
    first: usize,
    second: usize,
    versions: [u32; 2],
}

impl AlikePair {
    fn of<const N: usize>(
        parts: &[JoinedInterval<N>],
        first: usize,
        second: usize,
        weights: &[f64; N],
    ) -> AlikePair {
        let versions = [first, second].map(|at| parts[at].version);
        AlikePair { difference: parts[first].difference(&parts[second], weights), first, second, versions }
    }
}

impl PartialEq for AlikePair {
    fn eq(&self, other: &AlikePair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for AlikePair {}

impl Ord for AlikePair {
    fn cmp(&self, other: &AlikePair) -> Ordering {
        self.difference.total_cmp(&other.difference).then(self.first.cmp(&other.first))
    }
}

impl PartialOrd for AlikePair {
    fn partial_cmp(&self, other: &AlikePair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the means of the values of two intervals with these lengths.
fn means<const N: usize>(one: &[f64; N], other: &[f64; N], [length, other_length]: [f64; 2]) -> [f64; N] {
    let both = (length + other_length).max(1.0);
    array::from_fn(|of| (one[of] * length + other[of] * other_length) / both)
}
