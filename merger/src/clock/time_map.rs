use rpd_shard::model::{JobNs, LocalNs};
use serde::{Deserialize, Serialize};

/// Turns `CLOCK_BOOTTIME` of one domain into that of the reference: straight between knots, never backwards.
/// Beyond the knots the first and the last rate go on. Without knots times stay as they are, exactly.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TimeMap {
    /// In order of local times.
    knots: Vec<MapKnot>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct MapKnot {
    /// ns of the domain.
    local: i64,
    /// ns of the reference.
    job: i64,
    /// Job ns per local ns from here on, minus 1.
    rate: f64,
}

/// A rate that no clock has, but that garbage may ask for.
const ANY_RATE: f64 = 0.5;

impl TimeMap {
    /// Times stay as they are.
    pub fn identity() -> TimeMap {
        TimeMap::default()
    }

    /// Adds `offset` ns to all times.
    pub fn shift(offset: i64) -> TimeMap {
        TimeMap { knots: vec![MapKnot { local: 0, job: offset, rate: 0.0 }] }
    }

    /// Through (local, job) points in any order. Where several are at one local time the last one counts;
    /// where job times go backwards they stand still.
    pub fn through(mut points: Vec<(i64, i64)>) -> TimeMap {
        points.sort_unstable();
        points.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
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
            let (local, job) =
                (i128::from(b.local) - i128::from(a.local), i128::from(b.job) - i128::from(a.job));
            knots[i - 1].rate = (job - local) as f64 / local as f64;
        }
        if let [.., before, last] = knots.as_mut_slice() {
            last.rate = before.rate.clamp(-ANY_RATE, ANY_RATE);
        }
        TimeMap { knots }
    }

    /// Whether no time changes.
    pub fn is_identity(&self) -> bool {
        self.knots.is_empty()
    }

    /// The job time of a local time.
    pub fn map(&self, time: LocalNs) -> JobNs {
        self.cursor().map(time)
    }

    /// For many times, the cheaper the nearer they are to each other.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { map: self, at: 0 }
    }

    /// Local times at which the rate changes.
    pub fn bends(&self) -> impl Iterator<Item = LocalNs> {
        self.knots.iter().map(|k| LocalNs(k.local))
    }

    /// How much faster than the reference the domain's clock was on the whole, in parts per million.
    pub fn drift_ppm(&self) -> f64 {
        match (self.knots.first(), self.knots.last()) {
            (Some(a), Some(b)) if b.local > a.local && b.job > a.job => {
                let (local, job) =
                    (i128::from(b.local) - i128::from(a.local), i128::from(b.job) - i128::from(a.job));
                (local - job) as f64 / job as f64 * 1e6
            }
            _ => 0.0,
        }
    }
}

/// Applies a [`TimeMap`], and remembers where the last time was.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    map: &'a TimeMap,
    /// The knot before the last time, or 0.
    at: usize,
}

impl Cursor<'_> {
    /// The job time of a local time.
    #[inline]
    pub fn map(&mut self, time: LocalNs) -> JobNs {
        let knots = self.map.knots.as_slice();
        let Some(mut knot) = knots.get(self.at) else { return JobNs::from_fit(time.0) };
        let after = knots.get(self.at + 1);
        if (time.0 < knot.local && self.at > 0) || after.is_some_and(|next| next.local <= time.0) {
            self.at = knots.partition_point(|k| k.local <= time.0).saturating_sub(1);
            knot = knots.get(self.at).unwrap_or(knot);
        }
        JobNs::from_fit(knot.map(time.0, knots.get(self.at + 1)))
    }
}

impl MapKnot {
    #[inline]
    fn map(&self, local: i64, next: Option<&MapKnot>) -> i64 {
        let since = local.saturating_sub(self.local);
        // Before the first knot its rate goes on backwards, if a clock can have it.
        let rate = if since < 0 { self.rate.clamp(-ANY_RATE, ANY_RATE) } else { self.rate };
        let job = self.job.saturating_add(since).saturating_add((since as f64 * rate).round() as i64);
        // Rounding must not overtake the next knot.
        match next {
            Some(next) if since >= 0 => job.clamp(self.job, next.job),
            _ => job,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(map: &TimeMap, local: i64) -> i64 {
        map.map(LocalNs(local)).ns()
    }

    #[test]
    fn identity_and_shift_are_exact_over_all_times() {
        for time in [i64::MIN, -1, 0, 1, 1_700_000_000_000_000_001, i64::MAX] {
            assert_eq!(mapped(&TimeMap::identity(), time), time);
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
}
