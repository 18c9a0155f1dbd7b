//! Computes when to sample.

use std::time::{Duration, Instant};

/// Interval between two samples.
const PERIOD: Duration = Duration::from_millis(100);
/// Maximum interval, on a node with slow files.
const MAX_PERIOD: Duration = Duration::from_secs(1);
/// Duration of a sample above which the rate is halved.
const SLOW_SAMPLE: Duration = Duration::from_millis(50);

/// Points in time that are whole periods apart, so that delays do not add up.
pub(super) struct SamplingPace {
    period: Duration,
    last: Instant,
}

impl SamplingPace {
    pub(super) fn new(now: Instant) -> SamplingPace {
        SamplingPace { period: PERIOD, last: now }
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Notes how long a sample took.
    pub(super) fn took(&mut self, time: Duration) {
        if time > SLOW_SAMPLE {
            self.period = (self.period * 2).min(MAX_PERIOD);
        }
    }

    /// Returns the next point in time after `now`. Skips the points that were missed.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let passed = now.saturating_duration_since(self.last).as_nanos() / self.period.as_nanos();
        let periods = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
        self.last += self.period.saturating_mul(periods);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn delays_do_not_add_up_and_missed_points_are_skipped() {
        let start = Instant::now();
        let mut pace = SamplingPace::new(start);
        assert_eq!(pace.next(start + 7 * MS), start + 100 * MS);
        assert_eq!(pace.next(start + 103 * MS), start + 200 * MS);
        assert_eq!(pace.next(start + 555 * MS), start + 600 * MS);
        assert_eq!(pace.next(start + 600 * MS), start + 700 * MS);
    }

    #[test]
    fn slow_samples_halve_the_rate_down_to_one_a_second() {
        let start = Instant::now();
        let mut pace = SamplingPace::new(start);
        pace.took(50 * MS);
        assert_eq!(pace.period(), 100 * MS);
        for expected in [200, 400, 800, 1000, 1000] {
            pace.took(51 * MS);
            assert_eq!(pace.period(), expected * MS);
        }
        assert_eq!(pace.next(start + 20 * MS), start + 1000 * MS);
    }
}
