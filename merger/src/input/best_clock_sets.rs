//! The best clock set of each domain.

use rpd_shard::record::{ClockDomain, ClockSet};
use std::collections::BTreeMap;

/// The best clock set of each domain in the inputs of a merge rank.
pub(crate) type BestClockSets = BTreeMap<ClockDomain, ClockSet>;

/// Keeps the set with the smallest bracket for each domain; among equal ones, the first.
pub(crate) fn keep_best(best: &mut BestClockSets, sets: impl IntoIterator<Item = ClockSet>) {
    for set in sets {
        match best.get_mut(&set.domain) {
            Some(known) if known.bracket <= set.bracket => {}
            Some(known) => *known = set,
            None => {
                best.insert(set.domain.clone(), set);
            }
        }
    }
}
