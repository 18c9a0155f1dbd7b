//! Computes when to sample.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Mean interval between two samples.
const PERIOD: Duration = Duration::from_millis(100);
/// Maximum interval, on a node with slow files.
const MAX_PERIOD: Duration = Duration::from_secs(1);
/// Duration of a sample above which the rate is halved.
const SLOW_SAMPLE: Duration = Duration::from_millis(50);

/// Number of faster samples in a row after which the rate is doubled again, up to the usual one: on a busy node, a sample
/// is slow when it has to wait for a core.
const FAST_SAMPLES: u32 = 10;

/// Points in time a period apart on average, and a half to one and a half periods each time. At equal distances, samples of a
/// program with steps of the same length would always meet the same place in its steps. Delays do not add up.
pub(super) struct SamplingPace {
    period: Duration,
    /// Number of samples in a row that were not slow.
    fast_samples: u32,
    last: Instant,
    /// Hashes of numbers with these random keys are random numbers.
    random: RandomState,
    count: u64,
}

impl SamplingPace {
    pub(super) fn new(now: Instant) -> SamplingPace {
        SamplingPace { period: PERIOD, fast_samples: 0, last: now, random: RandomState::new(), count: 0 }
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Notes how long a sample took.
    pub(super) fn took(&mut self, time: Duration) {
        if time > SLOW_SAMPLE {
            self.period = (self.period * 2).min(MAX_PERIOD);
            self.fast_samples = 0;
            return;
        }
        self.fast_samples += 1;
        if self.fast_samples == FAST_SAMPLES {
            self.period = (self.period / 2).max(PERIOD);
            self.fast_samples = 0;
        }
    }

    /// Returns the next point in time after `now`. Skips the points that were missed.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        self.count += 1;
        let random = self.random.hash_one(self.count) as f64 / u64::MAX as f64;
        let distance = self.period.mul_f64(0.5 + random);
        self.last += distance;
        if self.last <= now {
            self.last = now + distance;
        }
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn points_are_a_period_apart_on_average_and_meet_all_places_of_steps() {
        let start = Instant::now();
        let mut pace = SamplingPace::new(start);
        let mut places = [0; 4];
        let mut now = start;
        for number in 0..4000 {
            // The sample takes its time, which is not added.
            let next = pace.next(now + (number % 40) * MS);
            let distance = next - now;
            assert!(distance >= 50 * MS && distance <= 150 * MS, "{distance:?}");
            now = next;
            places[((now - start).as_micros() % 200_000 / 50_000) as usize] += 1;
        }
        let mean = (now - start) / 4000;
        assert!(mean > 98 * MS && mean < 102 * MS, "{mean:?}");
        assert!(places.iter().all(|count| (800..1200).contains(count)), "steps of 200 ms: {places:?}");
    }

    #[test]
    fn points_that_were_missed_are_skipped() {
        let start = Instant::now();
        let mut pace = SamplingPace::new(start);
        let late = start + 555 * MS;
        let next = pace.next(late);
        assert!(next >= late + 50 * MS && next <= late + 150 * MS);
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
        let next = pace.next(start + 20 * MS);
        assert!(next >= start + 500 * MS && next <= start + 1500 * MS);
        let fast = |pace: &mut SamplingPace, count: u32| (0..count).for_each(|_| pace.took(MS));
        fast(&mut pace, FAST_SAMPLES - 1);
        assert_eq!(pace.period(), 1000 * MS);
        pace.took(51 * MS);
        for expected in [500, 250, 125, 100, 100] {
            fast(&mut pace, FAST_SAMPLES);
            assert_eq!(pace.period(), expected * MS);
        }
    }
}
