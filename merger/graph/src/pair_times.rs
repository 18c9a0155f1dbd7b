//! How long messages between two nodes take, block by block of the run.
//!
//! A wrong offset of the clocks of two nodes makes messages in one direction seem longer by as much as those in the other
//! seem shorter. So where messages go both ways, their mean is compared, and the messages themselves limit the
//! offset: none arrives before it is sent.

use crate::network_samples::{BLOCKS, FlowKey, FlowSample, FlowSamples};
use std::collections::BTreeMap;

/// Times are compared if they are known in so many blocks: then chance makes all of them longer in 0.4 % of the cases.
pub(crate) const MIN_BLOCKS: usize = 8;
/// The offset of two clocks hardly changes in so many blocks before and after one.
const NEAR_BLOCKS: usize = 2;

/// Mean time of a message between two nodes in a block, ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct BlockTime {
    pub(crate) ns: f64,
    /// By how much the clocks of the nodes can make it seem longer or shorter, ns.
    pub(crate) error_bound_ns: f64,
}

/// Times of the messages between two nodes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PairTimes {
    /// The nodes, ascending.
    pub(crate) nodes: (u32, u32),
    pub(crate) blocks: Vec<Option<BlockTime>>,
    /// Number of calls that received them.
    pub(crate) calls: u64,
}

impl PairTimes {
    /// Returns the times of all pairs of nodes of which enough is known, from flows of one class.
    pub(crate) fn of_flows<'a>(
        flows: impl Iterator<Item = (&'a FlowKey, &'a FlowSamples)>,
    ) -> Vec<PairTimes> {
        let mut pairs: BTreeMap<(u32, u32), [Vec<&FlowSamples>; 2]> = BTreeMap::new();
        for (key, samples) in flows {
            let nodes = (key.from.min(key.to), key.from.max(key.to));
            pairs.entry(nodes).or_default()[usize::from(key.from > key.to)].push(samples);
        }
        let times = |(nodes, directions): ((u32, u32), [Vec<&FlowSamples>; 2])| {
            let blocks = |directions: &[&[&FlowSamples]]| -> Vec<Option<BlockTime>> {
                (0..BLOCKS).map(|block| block_time(block, directions)).collect()
            };
            let is_enough = |blocks: &Vec<Option<BlockTime>>| blocks.iter().flatten().count() >= MIN_BLOCKS;
            let [up, down] = &directions;
            let mut tried = [blocks(&[up, down]), blocks(&[up]), blocks(&[down])].into_iter();
            let blocks = tried.find(is_enough)?;
            let calls = directions.iter().flatten().map(|samples| samples.calls).sum();
            Some(PairTimes { nodes, blocks, calls })
        };
        pairs.into_iter().filter_map(times).collect()
    }

    pub(crate) fn has(&self, node: u32) -> bool {
        self.nodes.0 == node || self.nodes.1 == node
    }
}

/// Returns the mean time in a block of messages in these directions; `None`, if it is not known in one of them.
fn block_time(block: usize, directions: &[&[&FlowSamples]]) -> Option<BlockTime> {
    let samples: Vec<Vec<FlowSample>> = directions
        .iter()
        .map(|flows| flows.iter().flat_map(|samples| samples.blocks[block].iter().copied()).collect())
        .collect();
    // No message arrives before it is sent, so the shortest of these limit the offset of the clocks.
    let near = block.saturating_sub(NEAR_BLOCKS)..=(block + NEAR_BLOCKS).min(BLOCKS - 1);
    let shortest = |flows: &&[&FlowSamples]| {
        let near = flows.iter().flat_map(|samples| samples.blocks[near.clone()].iter().flatten());
        near.map(|sample| sample.since_send_ns).min()
    };
    let shortest = directions.iter().map(shortest).collect::<Option<Vec<i64>>>()?;
    let of_clocks = samples.iter().flatten().map(|sample| sample.clock_bound_ns);
    let of_clocks = of_clocks
        .collect::<Option<Vec<u64>>>()
        .and_then(|bounds| bounds.into_iter().max())
        .map(|ns| ns as f64);
    let (shifts, error_bound_ns) = match shortest[..] {
        [up, down] => {
            let [up, down] = [up as f64, down as f64];
            let of_messages = (up + down) / 2.0;
            match of_clocks {
                // The clocks jump.
                None if of_messages < 0.0 => return None,
                Some(bound) if bound <= of_messages || of_messages < 0.0 => (vec![0.0, 0.0], bound),
                _ => (vec![(down - up) / 2.0, (up - down) / 2.0], of_messages),
            }
        }
        _ => (vec![0.0], of_clocks?),
    };
    let seen = |(samples, shift): (&Vec<FlowSample>, f64)| {
        let seen =
            |sample: &FlowSample| (sample.since_send_ns as f64 + shift).clamp(0.0, sample.in_call_ns as f64);
        median(samples.iter().map(seen).collect())
    };
    let times = samples.iter().zip(shifts).map(seen).collect::<Option<Vec<f64>>>()?;
    let directions = times.len() as f64;
    let ns = times.iter().sum::<f64>() / directions;
    Some(BlockTime { ns, error_bound_ns: error_bound_ns / directions })
}

/// Returns the lower median of the times of some pairs in each block, and of their error bounds.
pub(crate) fn median_times(pairs: &[&PairTimes]) -> Vec<Option<BlockTime>> {
    let of_block = |block: usize| {
        let known = || pairs.iter().filter_map(|pair| pair.blocks[block]);
        let ns = median(known().map(|time| time.ns).collect())?;
        Some(BlockTime { ns, error_bound_ns: median(known().map(|time| time.error_bound_ns).collect())? })
    };
    (0..BLOCKS).map(of_block).collect()
}

/// Returns the mean of the times of some pairs in each block, and of their error bounds.
pub(crate) fn mean_times(pairs: &[&PairTimes]) -> Vec<Option<BlockTime>> {
    let of_block = |block: usize| {
        let known: Vec<BlockTime> = pairs.iter().filter_map(|pair| pair.blocks[block]).collect();
        let mean = |of: fn(&BlockTime) -> f64| known.iter().map(of).sum::<f64>() / known.len() as f64;
        let time =
            || BlockTime { ns: mean(|time| time.ns), error_bound_ns: mean(|time| time.error_bound_ns) };
        (!known.is_empty()).then(time)
    };
    (0..BLOCKS).map(of_block).collect()
}

/// Times of messages compared with those of others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct TimeComparison {
    /// Median over the blocks of the time divided by that of the others.
    pub(crate) ratio: f64,
    /// Probability that messages that take as long as others are longer in so many of the blocks.
    pub(crate) p: f64,
    /// Medians over the blocks, ns.
    pub(crate) time_ns: f64,
    pub(crate) typical_ns: f64,
    pub(crate) excess_ns: f64,
    /// Larger part of the 95 % interval of `excess_ns` by the spread of the blocks, ns.
    pub(crate) spread_ns: f64,
    /// By how much the clocks can make the excess seem longer, ns.
    pub(crate) error_bound_ns: f64,
}

impl TimeComparison {
    /// Compares times block by block; `None`, if too few blocks have both.
    pub(crate) fn new(times: &[Option<BlockTime>], typical: &[Option<BlockTime>]) -> Option<TimeComparison> {
        let both: Vec<(BlockTime, BlockTime)> =
            times.iter().zip(typical).filter_map(|(time, typical)| (*time).zip(*typical)).collect();
        if both.len() < MIN_BLOCKS {
            return None;
        }
        let median_of = |of: &dyn Fn(&(BlockTime, BlockTime)) -> f64| median(both.iter().map(of).collect());
        let longer = both.iter().filter(|(time, typical)| time.ns > typical.ns).count();
        let equal = both.iter().filter(|(time, typical)| time.ns == typical.ns).count();
        Some(TimeComparison {
            // Clocks count in ns, so that shorter times are not known.
            ratio: median_of(&|(time, typical)| time.ns / typical.ns.max(1.0))?,
            p: sign_test(longer as u32, (both.len() - equal) as u32),
            time_ns: median_of(&|(time, _)| time.ns)?,
            typical_ns: median_of(&|(_, typical)| typical.ns)?,
            excess_ns: median_of(&|(time, typical)| time.ns - typical.ns)?,
            spread_ns: spread_of_median(both.iter().map(|(time, typical)| time.ns - typical.ns).collect()),
            error_bound_ns: median_of(&|(time, typical)| time.error_bound_ns + typical.error_bound_ns)?,
        })
    }
}

/// Returns the probability of at least so many heads in so many throws of a fair coin.
fn sign_test(heads: u32, throws: u32) -> f64 {
    let (mut of_exactly, mut sum) = (0.5f64.powi(throws as i32), 0.0);
    for count in 0..=throws {
        if count >= heads {
            sum += of_exactly;
        }
        of_exactly *= f64::from(throws - count) / f64::from(count + 1);
    }
    sum.min(1.0)
}

/// Returns the larger part of the 95 % interval of the median of the distribution from which these values are: its ends are as
/// many places from the middle as two standard deviations of the number of heads of a coin.
fn spread_of_median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let low = (count as f64 / 2.0 - (count as f64).sqrt()).max(0.0) as usize;
    let places = [low, count.saturating_sub(1) / 2, count.saturating_sub(1 + low)];
    match places.map(|place| values.get(place).copied()) {
        [Some(low), Some(middle), Some(high)] => (high - middle).max(middle - low),
        _ => 0.0,
    }
}

/// Returns the lower median.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::network_samples::FlowClass;

    #[test]
    fn the_sign_test_has_the_binomial_distribution() {
        for (heads, throws, p) in [(8, 8, 1.0 / 256.0), (0, 5, 1.0), (3, 4, 5.0 / 16.0), (0, 0, 1.0)] {
            assert!((sign_test(heads, throws) - p).abs() < 1e-12, "{heads} of {throws}");
        }
    }

    #[test]
    fn the_interval_of_the_median_contains_that_of_the_distribution() {
        let mut state = 3u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        for blocks in [MIN_BLOCKS, BLOCKS] {
            let mut covered = 0;
            for _ in 0..1000 {
                let values: Vec<f64> = (0..blocks).map(|_| uniform().powi(2)).collect();
                let found = median(values.clone()).unwrap();
                covered += u32::from((found - 0.25).abs() <= spread_of_median(values));
            }
            assert!(covered >= 930, "{covered} of 1000 with {blocks} blocks");
        }
        assert_eq!(spread_of_median(vec![4.0; 9]), 0.0);
    }

    /// Flows in both directions with these samples in each block: since the send, in the call.
    fn pair(up: (i64, u64), down: (i64, u64), clock_bound_ns: Option<u64>) -> Vec<PairTimes> {
        let flow = |from: u32, to: u32, (since_send_ns, in_call_ns): (i64, u64)| {
            let sample = FlowSample { since_send_ns, in_call_ns, clock_bound_ns };
            let class = FlowClass { label: 0, size: 0 };
            let key = FlowKey { class, from, to, others: Vec::new() };
            (key, FlowSamples { blocks: vec![vec![sample; 3]; BLOCKS], calls: 96 })
        };
        let flows = [flow(0, 1, up), flow(1, 0, down)];
        PairTimes::of_flows(flows.iter().map(|(key, samples)| (key, samples)))
    }

    #[test]
    fn an_offset_of_clocks_does_not_change_the_mean_of_both_directions() {
        // Messages take 100 ns and 300 ns, and the receivers wait for them.
        for offset in [0, 50, 1_000_000, -1_000_000] {
            let found = pair((100 + offset, 5_000), (300 - offset, 5_000), None);
            let time = found[0].blocks[0].unwrap();
            assert_eq!((found.len(), time.ns), (1, 200.0), "{offset}");
        }
    }

    #[test]
    fn messages_that_came_before_their_receiver_show_no_more_than_the_clocks_allow() {
        // Both receivers come 10 us after the message, and stay in the call for 100 ns.
        let found = pair((10_000, 100), (10_000, 100), Some(200));
        assert_eq!(found[0].blocks[0], Some(BlockTime { ns: 100.0, error_bound_ns: 100.0 }));
        // One comes late, so that the other one waits. By the messages alone, half of that may be the network.
        let found = pair((10_000, 100), (0, 10_000), None);
        let time = found[0].blocks[0].unwrap();
        assert!(time.ns <= 2_550.0 && time.error_bound_ns >= 2_500.0, "{time:?}");
    }

    #[test]
    fn one_direction_needs_clocks_with_bounds() {
        let one_way = |bound: Option<u64>| {
            let sample = FlowSample { since_send_ns: 700, in_call_ns: 900, clock_bound_ns: bound };
            let class = FlowClass { label: 0, size: 0 };
            let key = FlowKey { class, from: 3, to: 1, others: Vec::new() };
            let samples = FlowSamples { blocks: vec![vec![sample]; BLOCKS], calls: 32 };
            PairTimes::of_flows([(&key, &samples)].into_iter())
        };
        assert_eq!(one_way(None), []);
        let found = one_way(Some(40));
        assert_eq!(found[0].nodes, (1, 3));
        assert_eq!(found[0].blocks[5], Some(BlockTime { ns: 700.0, error_bound_ns: 40.0 }));
    }
}
