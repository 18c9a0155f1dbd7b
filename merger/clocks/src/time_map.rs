use rpd_shard::model::{JobNs, LocalNs};
use serde::{Deserialize, Serialize};

/// Maps `CLOCK_BOOTTIME` of one domain to that of the reference: linear between knots and never decreasing.
/// Beyond the knots, the first and the last rate are extended. Without knots, times are exactly unchanged.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TimeMap {
    /// Knots in order of local time.
    knots: Vec<MapKnot>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct MapKnot {
    /// Local time, ns of the domain.
    local: i64,
    /// Job time, ns of the reference.
    job: i64,
    /// Job ns per local ns from this knot on, minus 1.
    rate: f64,
}

/// Limit of an extended rate. No clock reaches it, but invalid input may.
const MAX_RATE: f64 = 0.5;
/// Number of times of a column that are mapped together.
const BATCH_TIMES: usize = 1024;
/// 1.5 * 2^52. If a number below [`MAX_EXACT`] is added, it is in the lowest bits, rounded to an integer, half to
/// even. Processors have vector instructions for `f64`, but mostly none that round or convert to 64 bits.
const ROUNDING_NUMBER: f64 = 6_755_399_441_055_744.0;
/// 2^51, 26 days in ns.
const MAX_EXACT: i64 = 1 << 51;

impl TimeMap {
    /// Returns a map that adds `offset` ns to all times.
    pub fn shift(offset: i64) -> TimeMap {
        TimeMap { knots: vec![MapKnot { local: 0, job: offset, rate: 0.0 }] }
    }

    /// Returns a map through (local, job) points in any order. Of several points at one local time, the last one
    /// counts. Job times that decrease are replaced by the latest one before.
    pub fn through(mut points: Vec<(i64, i64)>) -> TimeMap {
        points.sort_unstable();
        points.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 = later.1;
            }
            same
        });
        let mut latest = i64::MIN;
        for point in &mut points {
            latest = latest.max(point.1);
            point.1 = latest;
        }
        let mut knots: Vec<MapKnot> =
            points.iter().map(|&(local, job)| MapKnot { local, job, rate: 0.0 }).collect();
        for i in 1..knots.len() {
            let (a, b) = (knots[i - 1], knots[i]);
            let (local, job) = a.distance_to(&b);
            knots[i - 1].rate = (job - local) as f64 / local as f64;
        }
        if let [.., before, last] = knots.as_mut_slice() {
            last.rate = before.rate.clamp(-MAX_RATE, MAX_RATE);
        }
        TimeMap { knots }
    }

    /// Returns whether the map leaves times unchanged.
    pub fn is_identity(&self) -> bool {
        self.knots.is_empty()
    }

    /// Returns the job time of a local time.
    pub fn map(&self, time: LocalNs) -> JobNs {
        self.cursor().map(time)
    }

    /// Returns a cursor for many times. It is faster the closer these are to each other.
    pub fn cursor(&self) -> MapCursor<'_> {
        MapCursor { map: self, at: 0 }
    }

    /// Replaces local times, after adding `ahead` to each, by their job times. The results equal those of
    /// [`TimeMap::map`].
    pub fn map_all(&self, times: &mut [i64], ahead: i64) {
        if ahead != 0 {
            times.iter_mut().for_each(|time| *time = time.saturating_add(ahead));
        }
        if self.is_identity() {
            return;
        }
        let mut cursor = self.cursor();
        for some in times.chunks_mut(BATCH_TIMES) {
            if !cursor.map_in_one_piece(some) {
                some.iter_mut().for_each(|time| *time = cursor.map(LocalNs(*time)).ns());
            }
        }
    }

    /// Returns the local times at which the rate changes.
    pub fn bends(&self) -> impl Iterator<Item = LocalNs> {
        self.knots.iter().map(|k| LocalNs(k.local))
    }

    /// Returns how much faster the domain's clock was than the reference over all knots, ppm.
    pub fn drift_ppm(&self) -> f64 {
        match (self.knots.first(), self.knots.last()) {
            (Some(a), Some(b)) if b.local > a.local && b.job > a.job => {
                let (local, job) = a.distance_to(b);
                (local - job) as f64 / job as f64 * 1e6
            }
            _ => 0.0,
        }
    }
}

/// Applies a [`TimeMap`] and remembers the position of the last time.
#[derive(Clone, Debug)]
pub struct MapCursor<'a> {
    map: &'a TimeMap,
    /// Index of the knot before the last time, or 0.
    at: usize,
}

impl MapCursor<'_> {
    /// Returns the job time of a local time.
    #[inline]
    pub fn map(&mut self, time: LocalNs) -> JobNs {
        let Some((knot, next)) = self.find(time.0) else { return JobNs::from_fit(time.0) };
        JobNs::from_fit(knot.map(time.0, next))
    }

    /// Returns the knot before a time, or the first one, and the next knot.
    #[inline]
    fn find(&mut self, time: i64) -> Option<(&MapKnot, Option<&MapKnot>)> {
        let knots = self.map.knots.as_slice();
        let mut knot = knots.get(self.at)?;
        let after = knots.get(self.at + 1);
        if (time < knot.local && self.at > 0) || after.is_some_and(|next| next.local <= time) {
            self.at = knots.partition_point(|k| k.local <= time).saturating_sub(1);
            knot = knots.get(self.at).unwrap_or(knot);
        }
        Some((knot, knots.get(self.at + 1)))
    }

    /// Maps times that all lie between two knots and need no limit. Returns false, without a change, if they do
    /// not.
    fn map_in_one_piece(&mut self, times: &mut [i64]) -> bool {
        let ends = times.iter().fold(None, |ends, &time| match ends {
            None => Some((time, time)),
            Some((low, high)) => Some((time.min(low), time.max(high))),
        });
        let Some((low, high)) = ends else { return true };
        let Some((knot, next)) = self.find(low) else { return true };
        let is_between = next.is_none_or(|next| high < next.local);
        // Job times increase with local ones, so a condition that holds at both ends holds between them.
        let is_before_next =
            |time| knot.exactly(time).is_some_and(|job| next.is_none_or(|next| job <= next.job));
        if !(is_between && knot.rate.abs() <= MAX_RATE && is_before_next(low) && is_before_next(high)) {
            return false;
        }
        let (local, job, rate) = (knot.local, knot.job, knot.rate);
        if rate == 0.0 {
            times.iter_mut().for_each(|time| *time = time.wrapping_sub(local).wrapping_add(job));
        } else {
            for time in times {
                let since = time.wrapping_sub(local);
                *time = job.wrapping_add(since).wrapping_add(product(since, rate));
            }
        }
        true
    }
}

/// Returns `number * rate`, rounded to an integer. `number` and the product must be below [`MAX_EXACT`].
#[inline]
fn product(number: i64, rate: f64) -> i64 {
    let number =
        f64::from_bits((ROUNDING_NUMBER.to_bits() as i64).wrapping_add(number) as u64) - ROUNDING_NUMBER;
    ((number * rate + ROUNDING_NUMBER).to_bits() as i64).wrapping_sub(ROUNDING_NUMBER.to_bits() as i64)
}

impl MapKnot {
    /// Returns the local and the job time between two knots, ns.
    fn distance_to(&self, next: &MapKnot) -> (i128, i128) {
        (i128::from(next.local) - i128::from(self.local), i128::from(next.job) - i128::from(self.job))
    }

    #[inline]
    fn map(&self, local: i64, next: Option<&MapKnot>) -> i64 {
        let since = local.saturating_sub(self.local);
        // Before the first knot its rate is extended backwards, limited to a possible one.
        let rate = if since < 0 { self.rate.clamp(-MAX_RATE, MAX_RATE) } else { self.rate };
        let is_small = since.unsigned_abs() < MAX_EXACT.unsigned_abs() && rate.abs() <= MAX_RATE;
        let more =
            if is_small { product(since, rate) } else { (since as f64 * rate).round_ties_even() as i64 };
        let job = self.job.saturating_add(since).saturating_add(more);
        // Rounding must not exceed the next knot.
        match next {
            Some(next) if since >= 0 => job.clamp(self.job, next.job),
            _ => job,
        }
    }

    /// Returns the job time of a local time; `None` if an intermediate value is too large for [`product`] or
    /// `i64`.
    fn exactly(&self, local: i64) -> Option<i64> {
        let since = local.checked_sub(self.local)?;
        let is_small = since.unsigned_abs() < MAX_EXACT.unsigned_abs();
        let more = match is_small {
            _ if self.rate == 0.0 => 0,
            true => product(since, self.rate),
            false => return None,
        };
        self.job.checked_add(since)?.checked_add(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapped(map: &TimeMap, local: i64) -> i64 {
        map.map(LocalNs(local)).ns()
    }

    #[test]
    fn identity_and_shift_are_exact_over_all_times() {
        for time in [i64::MIN, -1, 0, 1, 1_700_000_000_000_000_001, i64::MAX] {
            assert_eq!(mapped(&TimeMap::default(), time), time);
            assert_eq!(mapped(&TimeMap::shift(-7), time), time.saturating_sub(7));
        }
    }

    #[test]
    fn times_are_straight_between_knots_and_rates_go_on_beyond() {
        let map = TimeMap::through(vec![(3_000, 5_030), (1_000, 3_000), (2_000, 4_010)]);
        let times = [0, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000];
        assert_eq!(times.map(|t| mapped(&map, t)), [1_990, 3_000, 3_505, 4_010, 4_520, 5_030, 6_050]);
        assert!((map.drift_ppm() + 30.0 / 2_030.0 * 1e6).abs() < 1e-6);
    }

    #[test]
    fn points_that_go_backwards_stand_still() {
        let map = TimeMap::through(vec![(0, 0), (100, 50), (200, 40), (200, 45), (300, 160)]);
        let mapped: Vec<i64> = (0..=300).map(|t| mapped(&map, t)).collect();
        assert!(mapped.is_sorted());
        assert_eq!((mapped[100], mapped[150], mapped[200], mapped[300]), (50, 50, 50, 160));
    }

    #[test]
    fn a_map_survives_being_sent() {
        let map = TimeMap::through(vec![(i64::MIN, 5), (-3, 9), (i64::MAX - 1, i64::MAX)]);
        let sent: TimeMap = serde_json::from_str(&serde_json::to_string(&map).unwrap()).unwrap();
        assert_eq!(sent, map);
    }

    /// Exact value of a map through `points`, without floating point: the job time as a fraction, ns and ns per
    /// `local` ns of the segment. There must be at least 2 points, in ascending order.
    fn line(points: &[(i64, i64)], time: i64) -> (i128, i128) {
        let after = points.partition_point(|p| p.0 <= time).clamp(1, points.len() - 1);
        let [(x0, y0), (x1, y1)] =
            [points[after - 1], points[after]].map(|(x, y)| (i128::from(x), i128::from(y)));
        (y0 * (x1 - x0) + (i128::from(time) - x0) * (y1 - y0), x1 - x0)
    }

    /// Knots at most minutes apart, with rates of up to 10 %, days after a distant origin.
    fn some_points() -> impl Strategy<Value = Vec<(i64, i64)>> {
        let start = -1_000_000_000_000_000_000..1_000_000_000_000_000_000i64;
        let steps = proptest::collection::vec((1..100_000_000_000i64, -100_000..=100_000i64), 1..6);
        (start.clone(), start, steps).prop_map(|(x, y, steps)| {
            let mut points = vec![(x, y)];
            for (step, millionths) in steps {
                let (x, y) = points[points.len() - 1];
                let job = i128::from(step) * i128::from(1_000_000 + millionths) / 1_000_000;
                points.push((x + step, y + job as i64));
            }
            points
        })
    }

    proptest! {
        /// Within reach of the knots, all times of a column are within 1 ns of the line. Half of that is
        /// rounding, the rest the precision of 53 bits. They equal the times that are mapped one by one.
        #[test]
        fn a_column_is_mapped_as_its_times_are_and_both_lie_on_the_lines(
            points in some_points(),
            places in proptest::collection::vec(-0.2f64..1.2, 0..3_000),
            narrow in any::<bool>(),
            ahead in prop_oneof![Just(0i64), any::<i32>().prop_map(i64::from)],
        ) {
            let map = TimeMap::through(points.clone());
            let (first, last) = (points[0].0, points[points.len() - 1].0);
            let length = (last - first) as f64 * if narrow { 1e-3 } else { 1.0 };
            let locals: Vec<i64> = places.iter().map(|p| first + (p * length) as i64).collect();
            let mut column: Vec<i64> = locals.iter().map(|time| time - ahead).collect();
            map.map_all(&mut column, ahead);
            for (local, job) in locals.iter().zip(column) {
                prop_assert_eq!(job, mapped(&map, *local));
                let (above, below) = line(&points, *local);
                let off = i128::from(job) * below - above;
                prop_assert!(off.abs() * 4 <= below * 3, "{} is {} / {} off", local, off, below);
            }
        }

        #[test]
        fn whatever_the_map_a_column_is_mapped_as_its_times_are(
            points in proptest::collection::vec((any::<i64>(), any::<i64>()), 0..5),
            near in any::<i64>(),
            mut times in proptest::collection::vec(prop_oneof![any::<i64>(), -1_000..1_000i64], 0..50),
            shift in any::<u8>(),
            ahead in any::<i64>(),
        ) {
            let shrink = |n: i64| (n >> (shift % 64)).saturating_add(near);
            let map = TimeMap::through(points.into_iter().map(|(x, y)| (shrink(x), y >> (shift % 64))).collect());
            times.iter_mut().for_each(|t| *t = shrink(*t));
            let wanted: Vec<i64> = times.iter().map(|t| mapped(&map, t.saturating_add(ahead))).collect();
            map.map_all(&mut times, ahead);
            prop_assert_eq!(times, wanted);
        }

        #[test]
        fn a_shift_of_a_column_is_exact(
            mut times in proptest::collection::vec(any::<i64>(), 1..50), offset in any::<i64>(),
        ) {
            let wanted: Vec<i64> = times.iter().map(|t| t.saturating_add(offset)).collect();
            TimeMap::shift(offset).map_all(&mut times, 0);
            prop_assert_eq!(times, wanted);
        }

        /// Shifting a domain's clock, or that of the reference, by X moves all times by exactly X and changes
        /// nothing else.
        #[test]
        fn a_shifted_map_maps_shifted_times(points in some_points(), places in proptest::collection::vec(-0.2f64..1.2, 1..50), x in -1_000_000_000_000_000_000..1_000_000_000_000_000_000i64) {
            let (first, length) = (points[0].0, (points[points.len() - 1].0 - points[0].0) as f64);
            let locals: Vec<i64> = places.iter().map(|p| first + (p * length) as i64).collect();
            let map = TimeMap::through(points.clone());
            let moved = TimeMap::through(points.iter().map(|(local, job)| (local + x, *job)).collect());
            let mut column: Vec<i64> = locals.iter().map(|time| time + x).collect();
            moved.map_all(&mut column, 0);
            prop_assert_eq!(column, locals.iter().map(|time| mapped(&map, *time)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn halves_go_to_even_on_both_sides() {
        for number in [-7i64, -5, -3, -1, 0, 1, 3, 5, 7, MAX_EXACT - 1, 1 - MAX_EXACT] {
            assert_eq!(product(number, 0.5), (number as f64 * 0.5).round_ties_even() as i64, "{number}");
            assert_eq!(product(number, -0.5), -product(number, 0.5), "{number}");
        }
    }
}
