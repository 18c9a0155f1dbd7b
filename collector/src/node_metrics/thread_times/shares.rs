//! Shares of time of one thread, from its sums at each tick.

use super::thread_sums::ThreadSums;

/// Shares of an interval that ends where the next one starts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct IntervalShares {
    /// Start, ns of `CLOCK_BOOTTIME`.
    pub(super) start: i64,
    /// Share on a core, %.
    pub(super) run: f64,
    /// Share in which the thread could have run, but had no core, %.
    pub(super) wait: f64,
    /// Share of the samples in which the thread was in an uninterruptible wait, %.
    pub(super) disk_wait: f64,
    /// Share of the samples in which the thread was in another wait than for a core, %.
    pub(super) sleep: f64,
    /// Samples per second.
    pub(super) samples: f64,
}

/// Change of the share without a core that begins a new interval, percentage points.
const MIN_CHANGE: f64 = 5.0;
/// Length from which an interval ends in any case, ns.
const MAX_LENGTH_NS: i64 = 1_000_000_000;

/// Joins ticks with about the same share without a core to intervals of up to a second. The shares of an interval are
/// exact means, so that the sum over intervals is exact, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadShares {
    /// Start of the interval, and the sums then.
    start: (i64, ThreadSums),
    /// The last tick, and the sums then.
    last: (i64, ThreadSums),
    /// Share without a core in the interval before, %.
    wait: Option<f64>,
}

impl ThreadShares {
    pub(super) fn new(time: i64, times: ThreadSums) -> ThreadShares {
        ThreadShares { start: (time, times), last: (time, times), wait: None }
    }

    /// Returns the last tick, and the sums then.
    pub(super) fn last(&self) -> (i64, ThreadSums) {
        self.last
    }

    /// Adds a tick. Returns the intervals that it completes, in their order.
    pub(super) fn add(&mut self, time: i64, times: ThreadSums) -> [Option<IntervalShares>; 2] {
        let now = (time, times);
        let tick = shares(self.last, now);
        let has_changed =
            self.wait.zip(tick).is_none_or(|(wait, tick)| (tick.wait - wait).abs() >= MIN_CHANGE);
        let before = std::mem::replace(&mut self.last, now);
        if has_changed {
            let completed = [shares(self.start, before), tick];
            self.start = now;
            self.wait = tick.map(|tick| tick.wait).or(self.wait);
            return completed;
        }
        if time.saturating_sub(self.start.0) < MAX_LENGTH_NS {
            return [None; 2];
        }
        let completed = shares(self.start, now);
        self.start = now;
        self.wait = completed.map(|shares| shares.wait).or(self.wait);
        [completed, None]
    }

    /// Adds a tick that is parted at some times between the last one and now, with the sums then. Each part has the samples of the
    /// tick. Returns the intervals that it completes, in their order.
    pub(super) fn add_parts(
        &mut self,
        time: i64,
        times: ThreadSums,
        parts: &[(i64, ThreadSums)],
    ) -> Vec<IntervalShares> {
        if parts.is_empty() {
            return self.add(time, times).into_iter().flatten().collect();
        }
        let now = (time, times);
        let tick = shares(self.last, now);
        let before = shares(self.start, self.last);
        let starts = std::iter::once(self.last).chain(parts.iter().copied());
        let ends = parts.iter().copied().chain([now]);
        let parted = starts.zip(ends).filter_map(|(from, to)| {
            let (IntervalShares { start, run, wait, .. }, tick) = (shares(from, to)?, tick?);
            Some(IntervalShares { start, run, wait, ..tick })
        });
        let completed: Vec<IntervalShares> = before.into_iter().chain(parted).collect();
        (self.start, self.last) = (now, now);
        self.wait = completed.last().map(|part| part.wait).or(self.wait);
        completed
    }

    /// Ends the thread. Returns the rest up to the last tick, and a mark from which on nothing is known.
    pub(super) fn end(&self) -> [Option<IntervalShares>; 2] {
        let mark = IntervalShares {
            start: self.last.0,
            run: 0.0,
            wait: 0.0,
            disk_wait: 0.0,
            sleep: 0.0,
            samples: 0.0,
        };
        [shares(self.start, self.last), Some(mark)]
    }
}

/// Returns the shares between two ticks; `None` if no time has passed.
fn shares(from: (i64, ThreadSums), to: (i64, ThreadSums)) -> Option<IntervalShares> {
    let length = to.0.saturating_sub(from.0);
    let round = |value: f64| (value * 100.0).round() / 100.0;
    let percent = |from: u64, to: u64| round(to.saturating_sub(from) as f64 * 1e2 / length as f64);
    let samples = to.1.samples.saturating_sub(from.1.samples) as f64;
    let sampled = |from: u64, to: u64| round(to.saturating_sub(from) as f64 * 1e2 / samples.max(1.0));
    (length > 0).then(|| IntervalShares {
        start: from.0,
        run: percent(from.1.run_ns, to.1.run_ns),
        wait: percent(from.1.wait_ns, to.1.wait_ns),
        disk_wait: sampled(from.1.disk_samples, to.1.disk_samples),
        sleep: sampled(from.1.sleep_samples, to.1.sleep_samples),
        samples: round(samples * 1e9 / length as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: i64 = 100_000_000;

    #[test]
    fn samples_of_states_are_shares_of_an_interval() {
        let mut shares = ThreadShares::new(0, ThreadSums::default());
        let mut sums = ThreadSums::default();
        let mut found = Vec::new();
        // One of ten ticks that are due was missed.
        for tick in [1, 2, 3, 5, 6, 7, 8, 9, 10] {
            sums.samples += 1;
            sums.disk_samples += u64::from(tick % 2 == 0);
            sums.sleep_samples += u64::from(tick == 3);
            found.extend(shares.add(tick * TICK, sums).into_iter().flatten());
        }
        found.extend(shares.end().into_iter().flatten());
        let count = |of: fn(&IntervalShares) -> f64| -> f64 {
            let seconds = |pair: &[IntervalShares]| (pair[1].start - pair[0].start) as f64 / 1e9;
            found.windows(2).map(|pair| of(&pair[0]) * seconds(pair)).sum()
        };
        let near =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-2, "{found}, not {expected}");
        near(count(|at| at.samples), 9.0);
        near(count(|at| at.samples * at.disk_wait / 100.0), 4.0);
        near(count(|at| at.samples * at.sleep / 100.0), 1.0);
    }

    #[test]
    fn a_thread_that_loses_its_core_begins_an_interval() {
        let mut shares = ThreadShares::new(0, ThreadSums::default());
        let mut sums = ThreadSums::default();
        let mut found = Vec::new();
        for tick in 1..=40 {
            let has_core = !(15..25).contains(&(tick - 1));
            sums.run_ns += if has_core { 100_000_000 } else { 50_000_000 };
            sums.wait_ns += if has_core { 0 } else { 50_000_000 };
            found.extend(shares.add(tick * TICK, sums).into_iter().flatten());
        }
        found.extend(shares.end().into_iter().flatten());
        let found: Vec<_> = found.iter().map(|at| (at.start / TICK, at.run, at.wait)).collect();
        let expected = [
            (0, 100.0, 0.0),
            (1, 100.0, 0.0),
            (11, 100.0, 0.0),
            (15, 50.0, 50.0),
            (16, 50.0, 50.0),
            (25, 100.0, 0.0),
            (26, 100.0, 0.0),
            (36, 100.0, 0.0),
            (40, 0.0, 0.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_parts_of_a_tick_share_its_samples() {
        let mut shares = ThreadShares::new(0, ThreadSums::default());
        let at = |run_ns: i64, wait_ns: i64, samples: u64| ThreadSums {
            run_ns: run_ns as u64,
            wait_ns: wait_ns as u64,
            samples,
            ..ThreadSums::default()
        };
        let parts = [(TICK / 4, at(TICK / 4, 0, 0)), (TICK / 2, at(TICK / 4, TICK / 4, 0))];
        let mut found = shares.add_parts(TICK, at(TICK / 4 * 3, TICK / 4, 1), &parts);
        found.extend(shares.add_parts(2 * TICK, at(TICK / 4 * 7, TICK / 4, 2), &[]));
        found.extend(shares.end().into_iter().flatten());
        let found: Vec<_> =
            found.iter().map(|at| (4 * at.start / TICK, at.run, at.wait, at.samples)).collect();
        let expected = [
            (0, 100.0, 0.0, 10.0),
            (1, 0.0, 100.0, 10.0),
            (2, 100.0, 0.0, 10.0),
            (4, 100.0, 0.0, 10.0),
            (8, 0.0, 0.0, 0.0),
        ];
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn the_intervals_add_up_to_what_the_kernel_counted(
            ticks in prop::collection::vec((1..300_000_000i64, 0..100_000_000u64, 0..100_000_000u64), 1..200)
        ) {
            let mut shares = ThreadShares::new(5, ThreadSums::default());
            let (mut time, mut sums) = (5, ThreadSums::default());
            let mut found = Vec::new();
            for (passed, run, wait) in ticks {
                time += passed;
                sums.run_ns += run;
                sums.wait_ns += wait;
                found.extend(shares.add(time, sums).into_iter().flatten());
            }
            found.extend(shares.end().into_iter().flatten());
            prop_assert_eq!((found[0].start, found.last().unwrap().start), (5, time));
            let sum = |of: fn(&IntervalShares) -> f64| -> f64 {
                found.windows(2).map(|pair| of(&pair[0]) / 100.0 * (pair[1].start - pair[0].start) as f64).sum()
            };
            // Shares are rounded to hundredths of a percent.
            let error = 1.0 + (time - 5) as f64 * 0.5e-4;
            prop_assert!((sum(|at| at.run) - sums.run_ns as f64).abs() <= error);
            prop_assert!((sum(|at| at.wait) - sums.wait_ns as f64).abs() <= error);
        }
    }
}
