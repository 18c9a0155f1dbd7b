//! How often stacks are read, so that this takes no more CPU time than it may.

use std::time::{Duration, Instant};

/// Time between two samples of a thread, unless that takes too much CPU time: 99 a second, so that it does not keep step
/// with what the program does 100 times a second.
const PERIOD: Duration = Duration::from_nanos(10_101_010);
/// Maximum time between two samples.
const MAX_PERIOD: Duration = Duration::from_secs(1);
/// Share of a core that all collectors of a node may take for samples.
const NODE_BUDGET: f64 = 0.018;
/// Share of a core that samples of one thread may take.
const THREAD_BUDGET: f64 = 0.008;
/// Interval between two decisions on the rate.
const DECIDE_EVERY: Duration = Duration::from_millis(500);
/// Change of the period below which it stays.
const MIN_CHANGE: f64 = 0.1;
/// CPU time beyond the budget is saved within about this time, s.
const SAVE_WITHIN_S: f64 = 20.0;
/// Share of the budget that samples have at least meanwhile.
const MIN_BUDGET: f64 = 0.8;

/// Decides on the time between samples.
#[derive(Debug)]
pub(super) struct SamplingRate {
    /// Share of a core that this collector may take for all threads.
    budget: f64,
    period: Duration,
    /// Time of the last decision, and CPU time and samples since.
    decided: Instant,
    used: Duration,
    ticks: u32,
    /// CPU time beyond the budget that is not saved yet, s.
    owed_s: f64,
}

impl SamplingRate {
    /// `ranks` is the number of ranks of the node, each of which has a collector.
    pub(super) fn new(ranks: u32, now: Instant) -> SamplingRate {
        let budget = NODE_BUDGET / f64::from(ranks.max(1));
        SamplingRate { budget, period: PERIOD, decided: now, used: Duration::ZERO, ticks: 0, owed_s: 0.0 }
    }

    /// Returns the time between two samples.
    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Adds CPU time that is not taken by samples, as by the search for an interpreter.
    pub(super) fn owe(&mut self, used: Duration) {
        self.owed_s += used.as_secs_f64();
    }

    /// Notes a tick without samples. The next ones decide on the rate once there are enough of them: the first one reads much that
    /// later ones know.
    pub(super) fn rest(&mut self, now: Instant) {
        self.owed_s += self.used.as_secs_f64();
        (self.decided, self.used, self.ticks) = (now, Duration::ZERO, 0);
    }

    /// Adds a tick in which samples of this many threads took this much CPU time.
    pub(super) fn took(&mut self, used: Duration, threads: usize, now: Instant) {
        self.used += used;
        self.ticks += 1;
        let elapsed = now.duration_since(self.decided);
        if elapsed < DECIDE_EVERY {
            return;
        }
        let budget = self.budget.min(THREAD_BUDGET * threads.max(1) as f64);
        let used_s = self.used.as_secs_f64();
        self.owed_s = (self.owed_s + used_s - budget * elapsed.as_secs_f64()).max(0.0);
        let left = (budget - self.owed_s / SAVE_WITHIN_S).max(budget * MIN_BUDGET);
        let affordable = used_s / f64::from(self.ticks) / left;
        let period = Duration::from_secs_f64(affordable.min(MAX_PERIOD.as_secs_f64())).max(PERIOD);
        if period.as_secs_f64() > self.period.as_secs_f64()
            || period.as_secs_f64() < self.period.as_secs_f64() * (1.0 - MIN_CHANGE)
        {
            self.period = period;
        }
        (self.decided, self.used, self.ticks) = (now, Duration::ZERO, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_within_their_share_of_the_node() {
        for (ranks, threads, cost_us, expected_us) in [
            (1, 1, 45, 10_101),
            (1, 1, 180, 22_500),
            (1, 2, 180, 11_250),
            (1, 9, 360, 20_000),
            (8, 1, 45, 20_000),
            (8, 4, 900, 400_000),
            (8, 1, 1, 10_101),
            (64, 1, 9000, 1_000_000),
        ] {
            let mut now = Instant::now();
            let mut rate = SamplingRate::new(ranks, now);
            let began = now;
            for _ in 0..2000 {
                now += rate.period();
                rate.took(Duration::from_micros(cost_us), threads, now);
            }
            let period_us = rate.period().as_micros();
            let case = format!("{ranks} ranks, {threads} threads, {cost_us} us: {period_us} us");
            assert!((expected_us..=expected_us * 10 / 9).contains(&period_us), "{case}");
            let budget = (NODE_BUDGET / f64::from(ranks)).min(THREAD_BUDGET * threads as f64);
            let share = 2000.0 * cost_us as f64 / now.duration_since(began).as_micros() as f64;
            assert!(share <= budget * 1.05 || rate.period() == MAX_PERIOD, "{case}, {share} of a core");
        }
        let mut now = Instant::now();
        let mut rate = SamplingRate::new(8, now);
        for cost_us in [900, 45] {
            for _ in 0..1000 {
                now += rate.period();
                rate.took(Duration::from_micros(cost_us), 1, now);
            }
        }
        assert!((20_000..=22_222).contains(&rate.period().as_micros()), "the rate rises again");
    }

    #[test]
    fn the_first_sample_after_a_pause_does_not_decide_alone() {
        let mut now = Instant::now();
        let mut rate = SamplingRate::new(1, now);
        for _ in 0..3 {
            for _ in 0..40 {
                now += Duration::from_millis(50);
                rate.rest(now);
            }
            for at in 0..200 {
                now += rate.period();
                rate.took(Duration::from_micros(if at == 0 { 1000 } else { 50 }), 1, now);
                assert_eq!(rate.period(), PERIOD, "after {at} samples");
            }
        }
    }

    #[test]
    fn what_a_search_takes_is_saved() {
        let mut now = Instant::now();
        let (began, mut rate) = (now, SamplingRate::new(1, now));
        let mut used = Duration::from_millis(60);
        rate.owe(used);
        // A sample takes 0.8 % of a core, as much as it may.
        let cost = Duration::from_micros(80);
        while now.duration_since(began) < Duration::from_secs(30) {
            now += rate.period();
            used += cost;
            rate.took(cost, 1, now);
        }
        let share = used.as_secs_f64() / now.duration_since(began).as_secs_f64();
        assert!(share < 0.01, "{share} of a core");
        assert!(rate.period() < Duration::from_millis(13), "{:?}", rate.period());
    }
}
