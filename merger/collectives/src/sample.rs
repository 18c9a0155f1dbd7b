//! Which collectives are kept where a job has more than fit: a sample by hash of communicator and number, so
//! that all ranks of a call are kept or none.
//!
//! A call is on the level of as many leading zeros as its hash has, and those from one level on are kept: the
//! lowest level from which on the job's calls are few enough. That does not depend on who counts them: what is
//! too much for one merge rank is too much for all of them together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use twox_hash::XxHash3_64;

/// Calls that are kept of a job, and as many in each merge rank until all are known.
pub const MAX_SAMPLED_CALLS: u64 = 1 << 20;
/// One level for each number of leading zeros, 64 included.
const LEVELS: usize = 65;

/// Hash of a call, the same in all its ranks.
pub(crate) fn sample_key(comm: u64, seq: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&comm.to_le_bytes());
    bytes[8..].copy_from_slice(&seq.to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}

fn level_of(key: u64) -> usize {
    key.leading_zeros() as usize
}

/// Counts calls, and says which are kept.
#[derive(Debug)]
pub struct CallSample {
    most: u64,
    /// Calls seen, per level.
    seen: [AtomicU64; LEVELS],
}

impl CallSample {
    /// Keeps so many at most.
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

    /// The level from which on calls are kept, by what was counted so far. It only rises.
    pub fn level(&self) -> usize {
        level(&self.counts(), self.most)
    }

    /// Whether a call is kept at this level.
    pub fn keeps(level: usize, key: u64) -> bool {
        level_of(key) >= level
    }

    /// What was counted.
    pub fn counts(&self) -> Vec<u64> {
        self.seen.iter().map(|n| n.load(Relaxed)).collect()
    }

    /// The same for the whole job: `all` are the counts of its merge ranks.
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

/// What is kept of the calls of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobSample {
    /// The level from which on calls are kept: one in two to the power of it.
    pub level: usize,
    /// Calls of all ranks.
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
            // No rank has dropped what the job keeps.
            prop_assert!(parts.iter().all(|p| p.level() <= wanted.level));
            if wanted.level > 0 {
                let more = keys.iter().filter(|k| CallSample::keeps(wanted.level - 1, **k)).count();
                prop_assert!(more as u64 > most);
            }
        }
    }
}
