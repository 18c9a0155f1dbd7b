//! When a timeline entered the calls that others await, for as long as they do.

use crate::replay_plan::ALWAYS;
use std::collections::{BTreeMap, VecDeque};

/// Entries of a timeline in a replay of `N` sets of durations, in the order of its calls. Timelines are seldom far apart,
/// so that few entries are kept at a time.
#[derive(Clone, Debug)]
pub(crate) struct AwaitedEnters<const N: usize> {
    /// Number of entries before those in the queue.
    first: usize,
    queue: VecDeque<AwaitedEnter<N>>,
    /// Numbers and times of earlier entries that are needed until the end, by number.
    kept: Vec<(usize, [i64; N])>,
    /// Numbers of dependencies on later entries that were given up.
    given_up: BTreeMap<usize, u8>,
}

#[derive(Clone, Copy, Debug)]
struct AwaitedEnter<const N: usize> {
    /// Times, ns of the replay.
    at: [i64; N],
    /// Number of dependencies that have not used it, or [`ALWAYS`].
    dependents: u8,
}

impl<const N: usize> Default for AwaitedEnters<N> {
    fn default() -> AwaitedEnters<N> {
        AwaitedEnters { first: 0, queue: VecDeque::new(), kept: Vec::new(), given_up: BTreeMap::new() }
    }
}

impl<const N: usize> AwaitedEnters<N> {
    /// Adds the entry into the next call that others await.
    pub(crate) fn add(&mut self, at: [i64; N], dependents: u8) {
        self.queue.push_back(AwaitedEnter { at, dependents });
        let number = self.first + self.queue.len() - 1;
        for _ in 0..self.given_up.remove(&number).unwrap_or(0) {
            self.release(number);
        }
    }

    /// Returns the times of an entry by its number, ns of the replay; `None` if it has not been added.
    #[inline]
    pub(crate) fn at(&self, number: usize) -> Option<[i64; N]> {
        match number.checked_sub(self.first) {
            Some(place) => self.queue.get(place).map(|entry| entry.at),
            None => self.kept_at(number),
        }
    }

    #[cold]
    fn kept_at(&self, number: usize) -> Option<[i64; N]> {
        let place = self.kept.binary_search_by_key(&number, |(kept, _)| *kept);
        place.ok().map(|place| self.kept[place].1)
    }

    /// Notes that a dependency has used an entry, or was given up. After the last one, the entry may be forgotten.
    #[inline]
    pub(crate) fn release(&mut self, number: usize) {
        let Some(place) = number.checked_sub(self.first) else { return };
        match self.queue.get_mut(place) {
            Some(AwaitedEnter { dependents: ALWAYS, .. }) => {}
            Some(entry) => entry.dependents = entry.dependents.saturating_sub(1),
            None => {
                let given_up = self.given_up.entry(number).or_default();
                *given_up = given_up.saturating_add(1);
            }
        }
        while let Some(first) = self.queue.front().filter(|first| matches!(first.dependents, 0 | ALWAYS)) {
            if first.dependents == ALWAYS {
                self.kept.push((self.first, first.at));
            }
            self.queue.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_until_their_last_dependency() {
        let mut enters = AwaitedEnters::<2>::default();
        // One of two dependencies on the entry 4 is given up before it comes.
        enters.release(4);
        for (dependents, at) in [1, 2, ALWAYS, 1, 2].into_iter().zip(0..) {
            enters.add([at, at * 10], dependents);
        }
        assert_eq!((enters.at(3), enters.at(5)), (Some([3, 30]), None));
        enters.release(1);
        enters.release(0);
        assert_eq!((enters.at(0), enters.at(1)), (None, Some([1, 10])));
        enters.release(1);
        enters.release(3);
        enters.release(2);
        assert_eq!((enters.at(1), enters.at(2), enters.at(3)), (None, Some([2, 20]), None));
        assert_eq!((enters.at(4), enters.queue.len()), (Some([4, 40]), 1));
        enters.release(4);
        assert_eq!((enters.at(4), enters.queue.len(), enters.kept.len()), (None, 0, 1));
    }
}
