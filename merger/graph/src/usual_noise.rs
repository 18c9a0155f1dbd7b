//! By how much the work of a usual thread differs from what is typical of a step, by chance.
//!
//! ```text
//! two usual threads   ratio = (work of one / work of the other in the same step / median of that) ^ (1 / sqrt 2),
//!                     as both differ by chance
//! only one            ratio = its work in a step / its work in an earlier step / median of that: what is typical of a step
//!                     is its work, which differs by chance as well
//! ```

use crate::job_calls::JobCalls;
use crate::suspects::usual_threads;
use crate::work_table::{WorkTable, share_of_most};
use std::f64::consts::FRAC_1_SQRT_2;
use std::sync::Arc;

/// Work that differs by a larger ratio does so for a reason.
const MAX_RATIO: f64 = 2.0;
/// Steps are compared that are at least this many blocks and this share of all apart: a disturbance that lasts for some steps
/// is chance as well.
const MIN_APART: usize = 2;
const APART: f64 = 0.1;
/// Fewer blocks show no noise.
const MIN_BLOCKS: usize = 3;

/// Ratios of the work of usual threads to typical work.
#[derive(Clone, Debug)]
pub(crate) struct UsualNoise {
    /// By block of steps.
    ratios: Arc<[f64]>,
    /// Number of the first block.
    first: usize,
    /// Distance of the block whose ratio is applied, as the work in a block itself is part of the replay.
    shift: usize,
}

impl UsualNoise {
    /// Compares the two usual threads of the kind of the first of `except` other than these, or the steps of one. `None` if
    /// there is none, or too few steps.
    pub(crate) fn new(job: &JobCalls, table: &WorkTable, except: &[u32]) -> Option<UsualNoise> {
        let blocks = table.step_blocks();
        let (first, count) = (blocks.start, blocks.len());
        if count < MIN_BLOCKS {
            return None;
        }
        let shift = MIN_APART.max((count as f64 * APART) as usize);
        // In a block of which calls are missing, waiting looks like work.
        let work = |timeline: u32, block: usize| {
            let is_known = block >= first && !table.is_lacking(timeline as usize, block);
            is_known.then(|| table.all_ns(timeline as usize, block) as f64)
        };
        let quotient = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
        let (quotients, exponent): (Vec<Option<f64>>, f64) = match working_threads(job, table, except)[..] {
            [one, other] => {
                let of_both = blocks.map(|block| quotient(work(one, block), work(other, block)));
                (of_both.collect(), FRAC_1_SQRT_2)
            }
            [only] => {
                let of_steps =
                    blocks.map(|block| quotient(work(only, block), work(only, block - shift.min(block))));
                (of_steps.collect(), 1.0)
            }
            _ => return None,
        };
        Some(UsualNoise { ratios: ratios(&quotients, exponent), first, shift })
    }

    /// Returns what typical work takes where it differs as that of a usual thread does, ns.
    pub(crate) fn applied(&self, typical_ns: u64, timeline: usize, block: usize) -> u64 {
        let count = self.ratios.len();
        let apart = 1 + (self.shift + timeline) % count.saturating_sub(1).max(1);
        let place = (block.saturating_sub(self.first) + apart) % count.max(1);
        let ratio = self.ratios.get(place).copied().unwrap_or(1.0);
        (typical_ns as f64 * ratio).round() as u64
    }
}

/// Returns up to two usual threads that work.
fn working_threads(job: &JobCalls, table: &WorkTable, except: &[u32]) -> Vec<u32> {
    let of_steps = |timeline: usize| {
        table.step_blocks().map(|block| table.all_ns(timeline, block)).fold(0, u64::saturating_add)
    };
    let work: Vec<u64> = (0..job.timelines.len()).map(of_steps).collect();
    let working = share_of_most(&work);
    let idle = (0..work.len()).filter(|timeline| working.binary_search(timeline).is_err());
    let idle = idle.map(|timeline| timeline as u32);
    usual_threads(job, table, &except.iter().copied().chain(idle).collect::<Vec<u32>>(), 2)
}

/// Returns the quotients of work without their median, with an exponent; 1 where it is not known, or more than noise.
fn ratios(quotients: &[Option<f64>], exponent: f64) -> Arc<[f64]> {
    let mut sorted: Vec<f64> =
        quotients.iter().flatten().copied().filter(|quotient| is_ratio(*quotient)).collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(1.0);
    let of_one = |quotient: &Option<f64>| {
        let noise = quotient.map_or(1.0, |quotient| quotient / median);
        let is_noise = (1.0 / MAX_RATIO..=MAX_RATIO).contains(&noise);
        if is_noise { noise.powf(exponent) } else { 1.0 }
    };
    quotients.iter().map(of_one).collect()
}

fn is_ratio(quotient: f64) -> bool {
    quotient.is_finite() && quotient > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_of_one_is_that_of_two_by_the_root_of_two() {
        let noise = [0.02, -0.01, 0.005, -0.03, 0.0, 0.01, -0.005, 0.03];
        let quotients: Vec<Option<f64>> = noise.iter().map(|noise: &f64| Some(1.25 * noise.exp())).collect();
        for (ratio, noise) in ratios(&quotients, FRAC_1_SQRT_2).iter().zip(noise) {
            // The median is one of the values, near 1.25.
            assert!((ratio.ln() * 2f64.sqrt() - noise).abs() < 0.006, "{ratio} {noise}");
        }
    }

    #[test]
    fn unknown_and_very_different_work_is_no_noise() {
        let found = ratios(&[Some(f64::NAN), Some(f64::INFINITY), Some(0.0), None], 1.0);
        assert_eq!(*found, [1.0; 4]);
        let found =
            ratios(&[Some(1.0), Some(1.5), Some(1.0), Some(1e9), Some(0.2), Some(1.0), Some(1.0)], 1.0);
        assert_eq!(*found, [1.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn the_ratio_of_a_block_is_that_of_another_one() {
        for count in 3..40 {
            for (shift, timeline) in [(2, 0), (2, 1), (3, 7), (2, 39)] {
                for block in 0..count {
                    let mut all = vec![1.0; count];
                    all[block] = 1.5;
                    let noise = UsualNoise { ratios: all.into(), first: 1, shift };
                    assert_eq!(
                        noise.applied(1_000, timeline, block + 1),
                        1_000,
                        "{count} {shift} {timeline}"
                    );
                }
            }
        }
        let none = UsualNoise { ratios: Vec::new().into(), first: 1, shift: 2 };
        assert_eq!(none.applied(7, 3, 1), 7);
    }
}
