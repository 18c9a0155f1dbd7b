//! Sums up the time in calls in which ranks may wait, and that are not compared.
//!
//! These are messages, collectives with a root, non-blocking ones and their waits, one-sided calls, file access,
//! and collectives that do not match. If this time is long, the absence of a late rank cannot be stated.

use super::functions::{CollectiveFunction, MessageCall};
use super::matched_call::MatchedCollective;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of functions that are distinguished. The time in further ones is added to [`FURTHER_CALLS`].
const MAX_FUNCTIONS: usize = 256;
/// Maximum number of open calls of a process that are counted, one for each of its threads.
const MAX_OPEN_CALLS: usize = 1 << 10;
/// Maximum length of a function name, in bytes.
const MAX_NAME_BYTES: usize = 64;
const FURTHER_CALLS: &str = "other calls";
/// Spread of the times that ranks need for `MPI_Finalize` without waiting, ns.
pub(super) const FINALIZE_SPREAD_NS: i64 = 100_000_000;

/// Time in calls by function, ns, summed over all processes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CallTimes(BTreeMap<String, i64>);

impl CallTimes {
    /// Adds the time in calls of one function.
    pub(super) fn add(&mut self, name: &str, ns: i64) {
        if ns <= 0 {
            return;
        }
        if let Some(sum) = self.0.get_mut(name) {
            *sum = sum.saturating_add(ns);
            return;
        }
        let has_own_entry = self.0.len() < MAX_FUNCTIONS && name.len() <= MAX_NAME_BYTES;
        let sum = self.0.entry(if has_own_entry { name } else { FURTHER_CALLS }.to_owned()).or_default();
        *sum = sum.saturating_add(ns);
    }

    /// Adds the times of `others`.
    pub(super) fn append(&mut self, others: &CallTimes) {
        others.0.iter().for_each(|(name, ns)| self.add(name, *ns));
    }

    /// Subtracts the times of `others`.
    pub(super) fn without(mut self, others: &CallTimes) -> CallTimes {
        let other = |name: &str| others.0.get(name).copied().unwrap_or(0);
        self.0.iter_mut().for_each(|(name, ns)| *ns = ns.saturating_sub(other(name)));
        self.0.retain(|_, ns| *ns > 0);
        self
    }

    /// Returns the total time, ns.
    pub(super) fn total(&self) -> i64 {
        self.0.values().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Returns the time in collectives, ns: all but messages and polls for them.
    pub(super) fn in_collectives(&self) -> i64 {
        let is_message = |name: &str| {
            MessageCall::is_message(name.as_bytes())
                || MessageCall::named(name.as_bytes()) == MessageCall::Polls
        };
        let others = self.0.iter().filter(|(name, _)| !is_message(name));
        others.fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }

    /// Returns the `most` functions with the longest times.
    pub(super) fn longest(&self, most: usize) -> Vec<String> {
        let mut all: Vec<(&String, i64)> = self.0.iter().map(|(name, ns)| (name, *ns)).collect();
        all.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        all.into_iter().take(most).map(|(name, _)| name.clone()).collect()
    }

    /// Extrapolates the times from a sample of one call in `one_in`.
    pub(super) fn times(mut self, one_in: i64) -> CallTimes {
        self.0.values_mut().for_each(|ns| *ns = ns.saturating_mul(one_in));
        self
    }
}

/// Time of a process in MPI calls that are not collectives, or in collectives that no other process can be
/// compared with.
#[derive(Clone, Debug, Default)]
pub struct ProcessTimes {
    /// Time before its first collective in which every rank waits for all ranks; part of start-up.
    pub(super) before: CallTimes,
    /// Time after that collective.
    pub(super) after: CallTimes,
    has_synchronised: bool,
    /// Duration of `MPI_Finalize`, ns.
    pub finalization_ns: Option<i64>,
    /// Open calls: the function, and the time at which the process entered it, ns of its clock.
    open: Vec<(String, i64)>,
}

impl ProcessTimes {
    /// Records a collective in which every rank waits for all ranks.
    pub(super) fn synchronises(&mut self) {
        self.has_synchronised = true;
    }

    /// Adds a call.
    pub(super) fn add(&mut self, name: &[u8], ns: i64) {
        let ns = match name {
            b"MPI_Init" | b"MPI_Init_thread" => return,
            b"MPI_Finalize" => {
                self.finalization_ns = self.finalization_ns.max(Some(ns));
                return;
            }
            _ => ns,
        };
        let Ok(name) = std::str::from_utf8(name) else { return };
        let times = if self.has_synchronised { &mut self.after } else { &mut self.before };
        times.add(name, ns);
    }

    /// Appends the times of a later block.
    pub(super) fn append(&mut self, later: &ProcessTimes) {
        let first = if self.has_synchronised { &mut self.after } else { &mut self.before };
        first.append(&later.before);
        self.after.append(&later.after);
        self.has_synchronised |= later.has_synchronised;
        self.finalization_ns = self.finalization_ns.max(later.finalization_ns);
        let free_entries = MAX_OPEN_CALLS.saturating_sub(self.open.len());
        self.open.extend(later.open.iter().take(free_entries).cloned());
    }

    /// Records an open call, which has no end.
    pub(super) fn add_open(&mut self, name: &[u8], enter: i64) {
        if let Some(name) = std::str::from_utf8(name).ok().filter(|_| self.open.len() < MAX_OPEN_CALLS) {
            self.open.push((name.to_owned(), enter));
        }
    }

    /// Ends the open calls at the time when the process was last seen, ns of its clock.
    pub fn close(&mut self, last_seen: i64) {
        for (name, enter) in std::mem::take(&mut self.open) {
            self.add(name.as_bytes(), last_seen.saturating_sub(enter).max(0));
        }
    }
}

/// Calls that are or may be one collective, and are not compared by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UntimedCalls {
    pub(super) function: CollectiveFunction,
    /// One of the processes, and the time at which it entered, ns of its clock domain.
    pub(super) participant: u32,
    pub(super) enter: i64,
    /// Time in all these calls, ns.
    pub(super) ns: i64,
}

/// Returns the wait time of all ranks in calls of one function that each of them makes once, summed up, ns. A
/// rank waits for as long as its call exceeds the shortest one by more than `spread`, that of ranks that do not
/// wait.
pub(super) fn time_over_shortest(durations: impl Iterator<Item = i64>, spread: i64) -> i64 {
    let durations: Vec<i64> = durations.collect();
    let shortest = durations.iter().copied().min().unwrap_or(0);
    let over = durations.iter().map(|ns| ns.saturating_sub(shortest).saturating_sub(spread).max(0));
    over.fold(0, i64::saturating_add)
}

/// Returns the time of all ranks in matched collectives, by function.
pub(super) fn time_in<'a>(collectives: impl Iterator<Item = &'a MatchedCollective>) -> CallTimes {
    let mut times = CallTimes::default();
    for one in collectives {
        times.add(&one.function.name(), one.time_inside());
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_the_first_synchronisation_is_kept_apart_however_calls_lie_in_blocks() {
        let mut whole = ProcessTimes::default();
        let mut later = ProcessTimes::default();
        whole.add(b"MPI_Init", 1_000);
        whole.add(b"MPI_Comm_split", 10);
        later.add(b"MPI_Bcast", 20);
        later.synchronises();
        later.add(b"MPI_Recv", 40);
        later.add(b"MPI_Finalize", 9);
        whole.append(&later);
        assert_eq!((whole.before.total(), whole.after.total(), whole.after.in_collectives()), (30, 40, 0));
        assert_eq!(whole.finalization_ns, Some(9));
        let mut last = ProcessTimes::default();
        last.add(b"MPI_Bcast", 7);
        whole.append(&last);
        assert_eq!((whole.before.total(), whole.after.total()), (30, 47));
        assert_eq!(whole.after.longest(2), ["MPI_Recv", "MPI_Bcast"]);
    }

    #[test]
    fn a_call_without_an_end_lasts_as_long_as_its_process_was_seen() {
        let (mut whole, mut later) = (ProcessTimes::default(), ProcessTimes::default());
        whole.synchronises();
        later.add_open(b"MPI_Win_fence", 100);
        whole.append(&later);
        whole.close(130);
        whole.close(500);
        assert_eq!((whole.after.total(), whole.after.longest(1)), (30, vec!["MPI_Win_fence".to_owned()]));
    }

    #[test]
    fn in_init_and_finalize_ranks_wait_for_the_last_one() {
        let seconds = |all: [i64; 4]| all.map(|ns| ns * 1_000_000_000).into_iter();
        assert_eq!(time_over_shortest(seconds([4, 3, 2, 1]), 0), 6_000_000_000);
        let waited_in_finalize =
            |durations: &[i64]| time_over_shortest(durations.iter().copied(), FINALIZE_SPREAD_NS);
        let teardown = [20_000_000, 90_000_000, 60_000_000, 110_000_000];
        assert_eq!(waited_in_finalize(&teardown), 0);
        assert_eq!(waited_in_finalize(&seconds([9, 9, 1, 9]).collect::<Vec<_>>()), 3 * 7_900_000_000);
        assert_eq!(waited_in_finalize(&[]), 0);
    }

    #[test]
    fn functions_are_bounded() {
        let mut times = CallTimes::default();
        (0..1_000).for_each(|n| times.add(&format!("MPI_{n}"), 1));
        times.add(&"x".repeat(1_000), 5);
        assert_eq!((times.0.len(), times.total()), (MAX_FUNCTIONS + 1, 1_005));
    }
}
