//! How long threads were blocked, and for what. How long is exact: the rest of the time on and without a CPU. For what is
//! sampled: collectors look ten times a second whether a blocked thread is in an uninterruptible wait.

use crate::cpu_shares::{CpuShare, values_between};
use crate::few_intervals::few_intervals;
use serde::{Deserialize, Serialize};

/// Number of intervals of a thread from which on neighbours are joined.
pub(crate) const MAX_INTERVALS: usize = 128;
/// Maximum number of samples per second.
const MAX_RATE: f32 = 100.0;

/// Shares of the time until the time of the next one. The last one has no end and no meaning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct BlockedShare {
    /// Start, ns in job time.
    pub start_ns: i64,
    /// Share of the time in which the thread was blocked.
    pub blocked: f32,
    /// Samples of its state, per second.
    pub samples: f32,
    /// Those in an uninterruptible wait.
    pub disk_wait: f32,
    /// Those in any other wait, but for a CPU.
    pub sleep: f32,
}

/// How long a thread was blocked in a stretch of time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BlockedTime {
    /// Time of which it is known, ns.
    pub known_ns: f64,
    /// Time blocked, ns.
    pub blocked_ns: f64,
    /// Samples of its state.
    pub samples: f64,
    /// Samples in an uninterruptible wait.
    pub disk_samples: f64,
    /// Samples in any other wait, but for a CPU.
    pub sleep_samples: f64,
}

impl BlockedShare {
    /// Joins the counters of a thread: of its running, its waiting for a CPU, the shares of two kinds of samples, and the
    /// samples per 10 ms. Times that not all of them have are omitted.
    pub(crate) fn join([runs, waits, disk_waits, sleeps, samples]: [&[CpuShare]; 5]) -> Vec<BlockedShare> {
        let at = |shares: &[CpuShare], start_ns: i64| {
            let found = shares.binary_search_by_key(&start_ns, |share| share.start_ns);
            found.ok().map(|place| shares[place].share)
        };
        let joined = disk_waits.iter().filter_map(|&CpuShare { start_ns, share: disk_wait }| {
            let blocked = (1.0 - at(runs, start_ns)? - at(waits, start_ns)?).clamp(0.0, 1.0);
            let rate = (at(samples, start_ns)? * 100.0).min(f64::from(MAX_RATE));
            Some((start_ns, [blocked, rate, rate * disk_wait, rate * at(sleeps, start_ns)?]))
        });
        // The rate of samples is random. A difference of 50 samples of waits per second counts as much as one of 1 in the blocked
        // share.
        let weights = [1.0, 0.0, 0.02, 0.02];
        let few = few_intervals(joined.collect(), MAX_INTERVALS, weights).into_iter();
        let shares = few.map(|(start_ns, values)| {
            let [blocked, samples, disk_wait, sleep] = values.map(|value| value as f32);
            // The mean of values can exceed the largest one by its rounding.
            let [samples, disk_wait, sleep] = [samples, disk_wait, sleep].map(|rate| rate.min(MAX_RATE));
            BlockedShare { start_ns, blocked: blocked.min(1.0), samples, disk_wait, sleep }
        });
        shares.collect()
    }

    /// Returns whether these are shares that [`BlockedShare::join`] can make.
    pub(crate) fn are_valid(shares: &[BlockedShare]) -> bool {
        let is_valid = |share: &BlockedShare| {
            let rates = [share.samples, share.disk_wait, share.sleep];
            (0.0..=1.0).contains(&share.blocked) && rates.iter().all(|rate| (0.0..=MAX_RATE).contains(rate))
        };
        shares.len() <= MAX_INTERVALS
            && shares.iter().all(is_valid)
            && shares.is_sorted_by(|one, other| one.start_ns < other.start_ns)
    }

    /// Sums shares between two times.
    pub(crate) fn sum_between(shares: &[BlockedShare], from: i64, to: i64) -> BlockedTime {
        let mut sum = BlockedTime::default();
        for (share, length) in values_between(shares, |share| share.start_ns, from, to) {
            sum.known_ns += length;
            sum.blocked_ns += f64::from(share.blocked) * length;
            sum.samples += f64::from(share.samples) * length / 1e9;
            sum.disk_samples += f64::from(share.disk_wait) * length / 1e9;
            sum.sleep_samples += f64::from(share.sleep) * length / 1e9;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(of: &[(i64, f64)]) -> Vec<CpuShare> {
        of.iter().map(|&(start_ns, share)| CpuShare { start_ns, share }).collect()
    }

    #[test]
    fn a_thread_is_blocked_while_it_neither_runs_nor_waits_for_a_cpu() {
        const S: i64 = 1_000_000_000;
        let runs = shares(&[(0, 0.5), (S, 0.25), (2 * S, 1.0), (3 * S, 0.0)]);
        let waits = shares(&[(0, 0.25), (S, 0.0), (2 * S, 0.25), (3 * S, 0.0)]);
        let disk_waits = shares(&[(0, 0.25), (S, 0.5), (2 * S, 0.0), (3 * S, 0.0)]);
        let sleeps = shares(&[(0, 0.0), (S, 0.25), (2 * S, 0.0), (3 * S, 0.0)]);
        let samples = shares(&[(0, 0.1), (S, 0.05), (2 * S, 0.1), (3 * S, 0.0)]);
        let joined = BlockedShare::join([&runs, &waits, &disk_waits, &sleeps, &samples]);
        assert!(BlockedShare::are_valid(&joined));
        let near = |found: BlockedTime, expected: [f64; 5]| {
            let BlockedTime { known_ns, blocked_ns, samples, disk_samples, sleep_samples } = found;
            let found = [known_ns / 1e9, blocked_ns / 1e9, samples, disk_samples, sleep_samples];
            let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
            assert!(is_near, "{found:?} instead of {expected:?}");
        };
        near(BlockedShare::sum_between(&joined, -S, 9 * S), [3.0, 1.0, 25.0, 5.0, 1.25]);
        near(BlockedShare::sum_between(&joined, S / 2, S), [0.5, 0.125, 5.0, 1.25, 0.0]);
        assert_eq!(BlockedShare::join([&runs[1..], &waits, &disk_waits, &sleeps[..3], &samples]).len(), 2);
    }

    #[test]
    fn many_intervals_become_few_with_the_same_sums() {
        let list = |of: fn(i64) -> f64| -> Vec<CpuShare> {
            (0..1001).map(|at| CpuShare { start_ns: at * at * 1000, share: of(at) }).collect()
        };
        let lists =
            [|at| (at % 3) as f64 / 4.0, |_| 0.125, |at| (at % 5) as f64 / 8.0, |at| (at % 2) as f64 / 2.0]
                .map(list);
        let exact: f64 =
            (0..1000).map(|at| (0.875 - (at % 3) as f64 / 4.0) * (2 * at + 1) as f64 * 1000.0).sum();
        let joined = BlockedShare::join([&lists[0], &lists[1], &lists[2], &lists[3], &lists[1]]);
        assert!(joined.len() <= MAX_INTERVALS && BlockedShare::are_valid(&joined), "{}", joined.len());
        let sum = BlockedShare::sum_between(&joined, 0, i64::MAX);
        assert!((sum.blocked_ns / exact - 1.0).abs() < 1e-6, "{sum:?} instead of {exact}");
        assert_eq!(sum.known_ns, 1e9);
    }
}
