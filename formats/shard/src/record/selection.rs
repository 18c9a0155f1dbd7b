use serde::{Deserialize, Serialize};

/// The ranks of the job that the user chose to record. A shard without this record belongs to a job that records
/// all ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Selection {
    /// First and last rank of each range, ascending, with a gap before the next range. At most
    /// [`Selection::MAX_RANGES`] ranges.
    pub ranks: Vec<(u32, u32)>,
}

impl Selection {
    /// Maximum number of ranges that a reader accepts.
    pub const MAX_RANGES: usize = 4096;

    /// Returns the union of ranges (first and last rank) in any order. A range with a last rank below its first
    /// is empty.
    pub fn of(ranges: impl IntoIterator<Item = (u32, u32)>) -> Selection {
        let mut given: Vec<(u32, u32)> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        given.sort_unstable();
        let mut ranks: Vec<(u32, u32)> = Vec::new();
        for (first, last) in given {
            match ranks.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => ranks.push((first, last)),
            }
        }
        Selection { ranks }
    }

    /// Returns whether the rank was chosen.
    pub fn contains(&self, rank: u32) -> bool {
        let i = self.ranks.partition_point(|(_, last)| *last < rank);
        self.ranks.get(i).is_some_and(|(first, _)| *first <= rank)
    }

    /// Returns whether the ranges satisfy the documented bounds, which [`Selection::contains`] relies on.
    pub fn is_sound(&self) -> bool {
        self.ranks.len() <= Selection::MAX_RANGES
            && self.ranks.iter().all(|(first, last)| first <= last)
            && self.ranks.windows(2).all(|w| w[0].1.checked_add(1).is_some_and(|next| next < w[1].0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_selection_has_the_ranks_of_its_ranges_and_no_others(
            ranges in proptest::collection::vec((0u32..40, 0u32..40), 0..8),
        ) {
            let chosen = Selection::of(ranges.iter().copied());
            prop_assert!(chosen.is_sound());
            for rank in 0..42 {
                let wanted = ranges.iter().any(|(first, last)| (*first..=*last).contains(&rank));
                prop_assert_eq!(chosen.contains(rank), wanted, "{} of {:?}", rank, chosen);
            }
        }
    }

    #[test]
    fn ranges_that_overlap_touch_or_go_backwards_are_not_sound() {
        let sound = |ranks: &[(u32, u32)]| Selection { ranks: ranks.to_vec() }.is_sound();
        assert!(sound(&[]) && sound(&[(0, 0), (2, u32::MAX)]));
        assert!(!sound(&[(1, 0)]) && !sound(&[(0, 1), (2, 3)]) && !sound(&[(0, 5), (3, 9)]));
        assert!(!sound(&[(4, 5), (0, 1)]) && !sound(&[(0, u32::MAX), (0, 1)]));
        let many = |n: u32| Selection { ranks: (0..n).map(|i| (2 * i, 2 * i)).collect() };
        assert!(many(4096).is_sound() && !many(4097).is_sound());
    }
}
