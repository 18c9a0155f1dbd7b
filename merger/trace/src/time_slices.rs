//! Divides the time of the run into files.

use std::collections::BTreeMap;

/// Maximum number of bins of a [`TimeHistogram`].
const MAX_BINS: usize = 1 << 16;

/// The time slices of all files, ns in job time. Each begins where the previous one ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TimeSlices {
    /// Beginning of each slice and end of the last one, ascending, at least two.
    borders: Vec<i64>,
}

impl TimeSlices {
    /// Returns one slice from `from` to `to`, exclusive. A slice has at least one nanosecond.
    pub(super) fn one(from: i64, to: i64) -> TimeSlices {
        let from = from.min(i64::MAX - 1);
        TimeSlices { borders: vec![from, to.max(from + 1)] }
    }

    /// Divides a span into `count` equal slices, or fewer if it has fewer nanoseconds.
    pub(super) fn equal(from: i64, to: i64, count: u32) -> TimeSlices {
        let whole = TimeSlices::one(from, to);
        let (from, to) = (i128::from(whole.first()), i128::from(whole.end()));
        let border = |i: u32| from + (to - from) * i128::from(i) / i128::from(count.max(1));
        whole.cut_at((1..count.max(1)).map(|i| border(i) as i64))
    }

    /// Divides a span at these times, which must ascend. Times outside of the span are ignored.
    pub(super) fn cut_at(self, times: impl Iterator<Item = i64>) -> TimeSlices {
        let (first, end) = (self.first(), self.end());
        let mut borders = vec![first];
        borders.extend(times.filter(|time| first < *time && *time < end));
        borders.push(end);
        borders.dedup();
        TimeSlices { borders }
    }

    /// Returns the number of slices.
    pub(super) fn len(&self) -> usize {
        self.borders.len() - 1
    }

    /// Returns the first time of all slices.
    pub(super) fn first(&self) -> i64 {
        self.borders.first().copied().unwrap_or_default()
    }

    /// Returns the first time after all slices.
    pub(super) fn end(&self) -> i64 {
        self.borders.last().copied().unwrap_or_default()
    }

    /// Returns the first time of a slice, and the first time after it.
    pub(super) fn get(&self, number: usize) -> Option<(i64, i64)> {
        Some((*self.borders.get(number)?, *self.borders.get(number + 1)?))
    }

    /// Returns the number of the slice that has a time.
    pub(super) fn find(&self, time: i64) -> Option<usize> {
        let place = self.borders.partition_point(|border| *border <= time);
        place.checked_sub(1).filter(|slice| *slice < self.len())
    }

    /// Iterates over all slices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.borders.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)))
    }
}

/// Number of events by their beginning.
///
/// Bins of all histograms begin at multiples of their width, a power of two that doubles when there are too many
/// bins. The sum of several histograms therefore does not depend on the distribution of the job.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct TimeHistogram {
    /// The width of a bin is 2 to the power of this, ns.
    shift: u32,
    bins: BTreeMap<i64, u64>,
    /// The bin that was added to last, which is not in `bins`. The next event is often in it, too.
    last: Option<(i64, u64)>,
}

impl TimeHistogram {
    /// Adds an event.
    pub(super) fn add(&mut self, start: i64) {
        let bin = start >> self.shift;
        match &mut self.last {
            Some((last, events)) if *last == bin => *events += 1,
            _ => {
                self.flush_last_bin();
                // The width may have changed.
                self.last = Some((start >> self.shift, 1));
            }
        }
    }

    /// Adds another histogram.
    pub(super) fn join(&mut self, mut other: TimeHistogram) {
        self.flush_last_bin();
        other.flush_last_bin();
        let shift = self.shift.max(other.shift);
        self.widen(shift);
        other.widen(shift);
        for (bin, events) in other.bins {
            *self.bins.entry(bin).or_default() += events;
        }
        self.shrink();
    }

    /// Moves the last bin into the map.
    pub(super) fn flush_last_bin(&mut self) {
        if let Some((bin, events)) = self.last.take() {
            *self.bins.entry(bin).or_default() += events;
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        while self.bins.len() > MAX_BINS {
            self.widen(self.shift + 1);
        }
    }

    fn widen(&mut self, shift: u32) {
        let by = shift - self.shift;
        if by == 0 {
            return;
        }
        self.shift = shift;
        let mut wide: BTreeMap<i64, u64> = BTreeMap::new();
        for (bin, events) in std::mem::take(&mut self.bins) {
            *wide.entry(bin >> by.min(63)).or_default() += events;
        }
        self.bins = wide;
    }

    /// Divides a span into as few files as possible that have at most about `max_load` each, and minimises
    /// the largest file. `weight` returns the load of a bin from its start and number of events. A bin is never divided. Events before the span are not counted.
    pub(super) fn cut(
        &self,
        window: &TimeSlices,
        max_load: u64,
        weight: impl Fn(i64, u64) -> u64,
    ) -> TimeSlices {
        let start = |bin: i64| bin.checked_shl(self.shift).unwrap_or(0).max(window.first());
        let bins = self.bins.range(window.first() >> self.shift..=(window.end() - 1) >> self.shift);
        let bins: Vec<(i64, u64)> =
            bins.map(|(bin, events)| (start(*bin), weight(start(*bin), *events))).collect();
        let total: u128 = bins.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let max_load = max_load.max(1);
        let count = usize::try_from(total.div_ceil(max_load.into())).unwrap_or(usize::MAX).max(1);
        // Bins do not fill files exactly, which is no reason for an additional file.
        let about = max_load.saturating_add(max_load / 16);
        let count = if borders(&bins, about).len() < count { count } else { borders(&bins, about).len() + 1 };
        let (mut low, mut high) = (0, about);
        while low < high {
            let middle = low.midpoint(high);
            if borders(&bins, middle).len() < count {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        window.clone().cut_at(borders(&bins, high).into_iter())
    }
}

/// Returns the beginnings of further files so that each file has at most `max_load` or is a single bin.
fn borders(bins: &[(i64, u64)], max_load: u64) -> Vec<i64> {
    let mut borders = Vec::new();
    let mut sum: u64 = 0;
    for (place, (start, weight)) in bins.iter().enumerate() {
        sum = sum.saturating_add(*weight);
        if sum > max_load && place > 0 {
            borders.push(*start);
            sum = *weight;
        }
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_windows_are_the_whole() {
        let windows = TimeSlices::equal(-5, 96, 32);
        assert_eq!((windows.len(), windows.first(), windows.end()), (32, -5, 96));
        assert!(windows.iter().all(|(from, to)| (3..=4).contains(&(to - from))));
        // A slice cannot be shorter than a nanosecond.
        assert_eq!(TimeSlices::equal(7, 10, 99_999).iter().collect::<Vec<_>>(), [(7, 8), (8, 9), (9, 10)]);
        assert_eq!(TimeSlices::equal(7, 7, 3).iter().collect::<Vec<_>>(), [(7, 8)]);
        assert_eq!(TimeSlices::equal(i64::MIN, i64::MAX, 4).get(2), Some((-1, i64::MAX / 2)));
    }

    fn histogram(times: &[i64]) -> TimeHistogram {
        let mut histogram = TimeHistogram::default();
        times.iter().for_each(|time| histogram.add(*time));
        histogram.flush_last_bin();
        histogram
    }

    proptest! {
        #[test]
        fn the_sum_does_not_depend_on_the_distribution(times in prop::collection::vec(-1000i64..1000, 0..200), at in 0usize..200) {
            let (one, other) = times.split_at(at.min(times.len()));
            let mut sum = histogram(other);
            sum.join(histogram(one));
            prop_assert_eq!(sum, histogram(&times));
        }

        #[test]
        fn windows_have_their_share(mut times in prop::collection::vec(0i64..100_000, 1..500), most in 1u64..200) {
            times.sort_unstable();
            times.dedup();
            let whole = TimeSlices::one(0, 100_000);
            let windows = histogram(&times).cut(&whole, most, |_, events| events);
            prop_assert_eq!((windows.first(), windows.end()), (0, 100_000));
            for (from, to) in windows.iter() {
                let count = times.iter().filter(|time| from <= **time && **time < to).count();
                prop_assert!(count as u64 <= most + 1);
            }
            prop_assert_eq!(windows.len() as u64, (times.len() as u64).div_ceil(most));
        }
    }

    #[test]
    fn what_cannot_be_cut_is_alone_and_the_rest_is_even() {
        let mut times: Vec<i64> = (0..100).collect();
        times.extend([50; 70]);
        let whole = TimeSlices::one(0, 100);
        let windows = histogram(&times).cut(&whole, 30, |_, events| events);
        let counts: Vec<usize> = windows
            .iter()
            .map(|(from, to)| times.iter().filter(|time| from <= **time && **time < to).count())
            .collect();
        assert_eq!(counts.iter().max(), Some(&71));
        assert!(
            counts.iter().filter(|count| **count != 71).all(|count| (17..=31).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_long_run_has_wide_bins_in_any_distribution() {
        let times: Vec<i64> = (0..300_000i64).map(|i| i * 1_000_003).collect();
        let whole = histogram(&times);
        assert!(whole.bins.len() <= MAX_BINS && whole.bins.len() > MAX_BINS / 2);
        let mut sum = TimeHistogram::default();
        times.chunks(7_777).rev().for_each(|part| sum.join(histogram(part)));
        assert_eq!(sum, whole);
        let windows = whole.cut(&TimeSlices::one(0, 300_000_000_000), 30_000, |_, events| events);
        assert_eq!(windows.len(), 10);
        for (from, to) in windows.iter() {
            let count = times.iter().filter(|time| from <= **time && **time < to).count();
            assert!((29_900..=30_020).contains(&count), "{count}");
        }
    }
}
