//! Distribution of the inputs over the merge ranks.

use crate::input::plan::PlannedInput;
use rpd_foreign::Format;
use std::ops::Range;

/// Approximate bytes of rows at which a group of inputs ends.
const GROUP_BYTES: u64 = 1 << 20;
/// Approximate bytes of a database per byte of a shard.
const SHARD_WEIGHT: u64 = 32;

impl PlannedInput {
    /// Returns the approximate bytes of the input's rows in the output; never 0.
    fn weight(&self) -> u64 {
        let factor = if self.format == Format::Shard { SHARD_WEIGHT } else { 1 };
        self.bytes.saturating_mul(factor).max(1)
    }
}

/// Groups inputs that are adjacent in the output, so that small ones share pages. The groups depend only on the
/// inputs.
pub(crate) fn groups(inputs: &[PlannedInput]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (i, input) in inputs.iter().enumerate() {
        bytes += input.weight();
        if bytes >= GROUP_BYTES {
            groups.push(first..i + 1);
            (first, bytes) = (i + 1, 0);
        }
    }
    if first < inputs.len() {
        groups.push(first..inputs.len());
    }
    groups
}

/// Assigns the groups to `ranks` ranks by bytes, one contiguous run each. Returns the groups of `rank`.
pub(crate) fn share(inputs: &[PlannedInput], rank: usize, ranks: usize) -> Vec<Range<usize>> {
    let groups = groups(inputs);
    let weight = |group: &Range<usize>| inputs[group.clone()].iter().map(PlannedInput::weight).sum::<u64>();
    let total: u64 = groups.iter().map(weight).sum();
    // A group belongs to the rank with the share of the bytes that contains the group's middle.
    let owner = |before: u64, bytes: u64| {
        ((before + bytes / 2) as u128 * ranks as u128 / total.max(1) as u128) as usize
    };
    let mut before = 0;
    let mut own = Vec::new();
    for group in groups {
        let bytes = weight(&group);
        if owner(before, bytes).min(ranks - 1) == rank {
            own.push(group);
        }
        before += bytes;
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shard(bytes: u64) -> PlannedInput {
        let path = "s".into();
        let (table_sets, guids) = (Vec::new(), Vec::new());
        PlannedInput {
            path,
            format: Format::Shard,
            table_sets,
            guids,
            rank: None,
            bytes,
            complete: true,
            running_until: None,
            has_no_process: false,
            shows_command: false,
        }
    }

    proptest! {
        #[test]
        fn every_shard_is_dealt_to_exactly_one_rank_in_order(
            bytes in proptest::collection::vec(0u64..1 << 40, 0..40), ranks in 1usize..20,
        ) {
            let shards: Vec<_> = bytes.iter().map(|b| shard(*b)).collect();
            let dealt: Vec<usize> = (0..ranks).flat_map(|r| share(&shards, r, ranks)).flatten().collect();
            prop_assert_eq!(dealt, (0..shards.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_shards_are_dealt_evenly() {
        let shards = vec![shard(1 << 15); 12];
        assert!((0..3).all(|r| share(&shards, r, 3).into_iter().flatten().count() == 4));
    }
}
