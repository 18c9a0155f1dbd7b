//! Selects the collectives that are kept if a job has more than fit. The sample is by hash of communicator and
//! number, so that either all ranks of a collective are kept or none.
//!
//! The level of a call is the number of leading zeros of its hash. Calls from one level upwards are kept: the
//! lowest level at which few enough calls of the job remain. The result does not depend on the number of merge
//! ranks: what is too much for one merge rank is too much for all together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use twox_hash::XxHash3_64;

/// One level for each number of leading zeros, 64 included.
const LEVELS: usize = 65;

/// Returns the hash of a call, which is the same in all its ranks.
pub(crate) fn sample_key(comm: u64, seq: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&comm.to_le_bytes());
    bytes[8..].copy_from_slice(&seq.to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}

fn level_of(key: u64) -> usize {
    key.leading_zeros() as usize
}

/// Counts calls and determines which ones are kept.
#[derive(Debug)]
pub struct CallSample {
    most: u64,
    /// Number of calls, by level.
    seen: [AtomicU64; LEVELS],
}

impl CallSample {
    /// Maximum number of calls that are kept of a job. Each merge rank keeps as many until the counts of all are
    /// known.
    pub const MAX_CALLS: u64 = 1 << 20;

    /// Creates a sample of at most `most` calls.
    pub fn new(most: u64) -> CallSample {
        CallSample { most, seen: [const { AtomicU64::new(0) }; LEVELS] }
    }

    /// Counts calls by their keys.
    pub fn count(&self, keys: impl Iterator<Item = u64>) {
        let mut counts = [0; LEVELS];
        keys.for_each(|key| counts[level_of(key)] += 1);
        let counted = self.seen.iter().zip(counts).filter(|(_, n)| *n > 0);
        counted.for_each(|(seen, n)| {
            seen.fetch_add(n, Relaxed);
        });
    }

    /// Returns the lowest level that is kept, from the calls counted so far. It only rises.
    pub fn level(&self) -> usize {
        level(&self.counts(), self.most)
    }

    /// Returns whether a call is kept at this level.
    pub fn keeps(level: usize, key: u64) -> bool {
        level_of(key) >= level
    }

    /// Returns the number of calls, by level.
    pub fn counts(&self) -> Vec<u64> {
        self.seen.iter().map(|n| n.load(Relaxed)).collect()
    }

    /// Computes the sample of the whole job. `all` are the counts of its merge ranks.
    pub fn of_job(&self, all: &[Vec<u64>]) -> JobSample {
        let sum = |i: usize| all.iter().filter_map(|c| c.get(i)).fold(0u64, |a, b| a.saturating_add(*b));
        let counts: Vec<u64> = (0..LEVELS).map(sum).collect();
        JobSample { level: level(&counts, self.most), calls: counts.iter().sum() }
    }
}

fn level(counts: &[u64], most: u64) -> usize {
    let mut kept = 0u64;
    for (level, count) in counts.iter().enumerate().rev() {
        kept = kept.saturating_add(*count);
        if kept > most {
            return level + 1;
        }
    }
    0
}

/// The sample of the job's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobSample {
    /// The lowest level that is kept. One call in 2 to the power of `level` is kept.
    pub level: usize,
    /// Number of calls of all ranks.
    pub calls: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_kept_does_not_depend_on_who_counts(
            keys in proptest::collection::vec(any::<u64>().prop_map(|k| k >> (k % 12)), 0..200),
            cut in 0usize..200, most in 1u64..50,
        ) {
            let cut = cut.min(keys.len());
            let alone = CallSample::new(most);
            alone.count(keys.iter().copied());
            let wanted = alone.of_job(&[alone.counts()]);
            let kept = keys.iter().filter(|k| CallSample::keeps(wanted.level, **k)).count();
            prop_assert!(kept as u64 <= most);
            let parts = [CallSample::new(most), CallSample::new(most)];
            parts[0].count(keys[..cut].iter().copied());
            parts[1].count(keys[cut..].iter().copied());
            let counts: Vec<_> = parts.iter().map(CallSample::counts).collect();
            prop_assert_eq!(parts[0].of_job(&counts), wanted);
            // No rank has dropped a call that the job keeps.
            prop_assert!(parts.iter().all(|p| p.level() <= wanted.level));
            if wanted.level > 0 {
                let more = keys.iter().filter(|k| CallSample::keeps(wanted.level - 1, **k)).count();
                prop_assert!(more as u64 > most);
            }
        }
    }
}
