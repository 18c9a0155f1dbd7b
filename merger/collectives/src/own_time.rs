//! Own time of a rank: the time that it spends outside of MPI between two synchronisations. A rank that enters a
//! collective late because it waited for a message has no more own time than the others, since it waited inside
//! MPI. A rank that computed or slept longer has more.
//!
//! Between two polls (`MPI_Test`, `MPI_Iprobe`, ...) a rank works, or it sleeps until it polls again. A short
//! gap counts as waiting. A long gap may be either and is summed up separately.
//!
//! If a process also calls MPI in a second thread, it may wait there while the first thread does nothing. Its
//! own times are then not known ([`MpiTimes::in_other_threads`]).
//!
//! While blocks are read, [`MpiTimes`] sums up the time of each thread in MPI, and each collective stores the
//! sum before it. When all calls of a process are read, [`note_own_times`] computes the own time between two
//! collectives as the difference of two sums.

use super::functions::{FunctionWaits, MessageCall};
use super::process_calls::{CollectiveCall, ProcessCollectives};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest gap between two polls that counts as waiting, ns.
const MAX_POLL_GAP_NS: i64 = 100_000;
/// Maximum number of threads of one process with calls that are summed up. Collectives of other threads have no own
/// time.
const MAX_THREADS: usize = 1 << 12;
/// Time in MPI in other threads is ignored up to the time that collectives span, divided by this.
const MAX_OTHER_THREADS_PART: i64 = 100;
/// Value of [`OwnTime::since`] if own time counts from the end of `MPI_Init`.
pub(super) const SINCE_INIT: u64 = 0;

/// Time that a thread had spent in MPI when it entered a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MpiBefore {
    /// Number of the thread in the process.
    pub thread: i64,
    /// Time in MPI calls that had ended by then, and in short gaps between polls, ns.
    pub ns: i64,
    /// Time in long gaps between polls, ns: work or waiting.
    pub poll_gaps_ns: i64,
}

/// Own time of a process before a collective.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OwnTime {
    /// Key of the collective from which own time counts (the synchronisation). It is the same in all its ranks.
    pub since: u64,
    /// Time outside of MPI since then, except gaps between polls, ns.
    pub ns: i64,
    /// Time in gaps between polls since then, ns: work or waiting.
    pub poll_gaps_ns: i64,
    /// Time in other collectives since then, ns.
    pub collectives_ns: i64,
    /// Time at which the process left the synchronisation, ns of its clock.
    pub left: i64,
}

/// Time of a process in MPI calls, by thread.
#[derive(Clone, Debug, Default)]
pub struct MpiTimes {
    threads: BTreeMap<i64, ThreadTime>,
    /// The call of `MPI_Init`.
    init: Option<InitCall>,
}

/// The call of `MPI_Init`, ns of the process's clock.
#[derive(Clone, Copy, Debug)]
struct InitCall {
    exit: i64,
    /// Duration, ns.
    ns: i64,
    /// Time of the thread in MPI until the call ended.
    before: MpiBefore,
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadTime {
    ns: i64,
    poll_gaps_ns: i64,
    poll_ended: Option<i64>,
    /// Time in calls that send or post since the last poll, ns.
    posts_since_poll_ns: i64,
}

impl MpiTimes {
    /// Returns whether several threads call MPI.
    pub fn are_of_several_threads(&self) -> bool {
        self.threads.len() > 1
    }

    /// Adds a call and returns the time that the thread had spent in MPI before it. Calls must be added in the
    /// order of the thread.
    pub fn add(
        &mut self,
        thread: i64,
        call: MessageCall,
        enter: i64,
        exit: Option<i64>,
    ) -> Option<MpiBefore> {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&thread) {
            return None;
        }
        let time = self.threads.entry(thread).or_default();
        let exit = exit.filter(|exit| *exit >= enter);
        let since_poll = |ended: i64| enter.saturating_sub(ended).saturating_sub(time.posts_since_poll_ns);
        if call == MessageCall::Polls
            && let Some(gap) = time.poll_ended.map(since_poll).filter(|gap| *gap >= 0)
        {
            let sum = if gap <= MAX_POLL_GAP_NS { &mut time.ns } else { &mut time.poll_gaps_ns };
            *sum = sum.saturating_add(gap);
        }
        let before = time.sum(thread);
        let ns = exit.map_or(0, |exit| exit.saturating_sub(enter));
        time.ns = time.ns.saturating_add(ns);
        (time.poll_ended, time.posts_since_poll_ns) = match call {
            MessageCall::Polls => (exit, 0),
            MessageCall::Posts => (time.poll_ended, time.posts_since_poll_ns.saturating_add(ns)),
            MessageCall::Initializes | MessageCall::Other => (None, 0),
        };
        if let (MessageCall::Initializes, Some(exit), None) = (call, exit, self.init) {
            self.init = Some(InitCall { exit, ns, before: time.sum(thread) });
        }
        Some(before)
    }

    /// Returns the end of `MPI_Init`, ns of the process's clock.
    pub fn initialized(&self) -> Option<i64> {
        self.init.map(|init| init.exit)
    }

    /// Returns the duration of `MPI_Init`, ns.
    pub fn initialization_ns(&self) -> Option<i64> {
        self.init.map(|init| init.ns)
    }

    /// Returns the time between polls in all threads, ns: work or waiting.
    pub fn poll_gaps_ns(&self) -> i64 {
        self.threads.values().fold(0, |sum: i64, time| sum.saturating_add(time.poll_gaps_ns))
    }

    /// Returns the time in MPI and between polls in all threads but this one, ns.
    fn in_other_threads(&self, thread: i64) -> i64 {
        let others = self.threads.iter().filter(|(other, _)| **other != thread);
        others.fold(0, |sum: i64, (_, time)| sum.saturating_add(time.ns).saturating_add(time.poll_gaps_ns))
    }

    /// Converts the end of `MPI_Init` to another clock of the node.
    pub fn convert(&mut self, convert: impl Fn(i64) -> i64) {
        self.init = self.init.map(|init| InitCall { exit: convert(init.exit), ..init });
    }

    /// Appends the times of a later block. `calls` are the calls of that block.
    pub(super) fn append(&mut self, later: MpiTimes, calls: &mut [CollectiveCall]) {
        let after_earlier = |before: MpiBefore| match self.threads.get(&before.thread) {
            Some(time) => before.after(time),
            None => before,
        };
        for before in calls.iter_mut().filter_map(|call| call.mpi_before.as_mut()) {
            *before = after_earlier(*before);
        }
        if let (None, Some(init)) = (self.init, later.init) {
            self.init = Some(InitCall { before: after_earlier(init.before), ..init });
        }
        for (thread, time) in later.threads {
            if self.threads.len() < MAX_THREADS || self.threads.contains_key(&thread) {
                let known = self.threads.entry(thread).or_default();
                *known = ThreadTime {
                    ns: known.ns.saturating_add(time.ns),
                    poll_gaps_ns: known.poll_gaps_ns.saturating_add(time.poll_gaps_ns),
                    ..time
                };
            }
        }
    }
}

impl ThreadTime {
    fn sum(&self, thread: i64) -> MpiBefore {
        MpiBefore { thread, ns: self.ns, poll_gaps_ns: self.poll_gaps_ns }
    }
}

impl MpiBefore {
    /// Adds the time that the thread had spent in earlier blocks.
    fn after(self, earlier: &ThreadTime) -> MpiBefore {
        let ns = self.ns.saturating_add(earlier.ns);
        MpiBefore { ns, poll_gaps_ns: self.poll_gaps_ns.saturating_add(earlier.poll_gaps_ns), ..self }
    }
}

/// A collective from which own time counts.
#[derive(Clone, Copy)]
struct Synchronisation {
    key: u64,
    exit: i64,
    /// Time in MPI until its end.
    mpi: MpiBefore,
    /// Time in collectives until its end, ns.
    collectives_ns: i64,
}

/// Returns whether other threads than the main one spend more than a hundredth of the time that the collectives
/// span in MPI. One thread may then wait while another one does nothing.
pub(super) fn is_in_threads(process: &ProcessCollectives) -> bool {
    let mut calls_of: BTreeMap<i64, u64> = BTreeMap::new();
    for before in process.calls.iter().filter_map(|call| call.mpi_before) {
        *calls_of.entry(before.thread).or_default() += 1;
    }
    let Some((main, _)) = calls_of.into_iter().max_by_key(|(_, calls)| *calls) else { return false };
    let first = process.calls.iter().map(|call| call.enter).min().unwrap_or(0);
    let last = process.calls.iter().filter_map(|call| call.exit).max().unwrap_or(first);
    let others = process.mpi.in_other_threads(main);
    others.saturating_mul(MAX_OTHER_THREADS_PART) > last.saturating_sub(first).max(0)
}

/// Sets the own time of each call of a process: the time since the last collective in which all of its ranks
/// waited for all. `sizes` are the numbers of processes of its communicators. A communicator of size `everyone`
/// synchronises the others too.
pub(super) fn note_own_times(process: &mut ProcessCollectives, sizes: &BTreeMap<u64, u32>, everyone: u32) {
    process.calls.sort_by_key(|call| (call.enter, call.key));
    if process.is_in_threads {
        return process.calls.iter_mut().for_each(|call| call.own_time = None);
    }
    let mut collectives_ns: i64 = 0;
    let mut of_everyone = process.mpi.init.map(|init| Synchronisation {
        key: SINCE_INIT,
        exit: init.exit,
        mpi: init.before,
        collectives_ns: 0,
    });
    let mut of_comm: BTreeMap<u64, Synchronisation> = BTreeMap::new();
    for call in &mut process.calls {
        let own = of_comm.get(&call.comm).copied();
        let last = [own, of_everyone].into_iter().flatten().max_by_key(|last| last.exit);
        call.own_time = last.and_then(|last| own_time(call, collectives_ns, &last));
        let (Some(exit), Some(before)) = (call.exit, call.mpi_before) else { continue };
        collectives_ns = collectives_ns.saturating_add(exit.saturating_sub(call.enter));
        if call.function.waits() != FunctionWaits::AllForAll || call.size == Some(0) {
            continue;
        }
        let ns = before.ns.saturating_add(exit.saturating_sub(call.enter));
        let mpi = MpiBefore { ns, ..before };
        let last = Synchronisation { key: call.key, exit, mpi, collectives_ns };
        if sizes.get(&call.comm) == Some(&everyone) {
            of_everyone = Some(last);
        } else {
            of_comm.insert(call.comm, last);
        }
    }
}

/// Returns the time outside of MPI between a synchronisation and a call. Returns `None` if another thread made
/// the call or if the calls overlap.
fn own_time(call: &CollectiveCall, collectives_ns: i64, last: &Synchronisation) -> Option<OwnTime> {
    let before = call.mpi_before.filter(|before| before.thread == last.mpi.thread)?;
    let (between, in_mpi) = (call.enter.checked_sub(last.exit)?, before.ns.checked_sub(last.mpi.ns)?);
    let outside = between.checked_sub(in_mpi).filter(|_| between >= 0 && in_mpi >= 0)?.max(0);
    let poll_gaps_ns = before.poll_gaps_ns.saturating_sub(last.mpi.poll_gaps_ns).clamp(0, outside);
    let collectives_ns = collectives_ns.saturating_sub(last.collectives_ns).max(0);
    let ns = outside - poll_gaps_ns;
    Some(OwnTime { since: last.key, ns, poll_gaps_ns, collectives_ns, left: last.exit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::CollectiveFunction;
    use MessageCall::{Initializes, Other, Polls};
    use proptest::prelude::*;

    const WORLD: u64 = 7;

    fn barrier(seq: u64, enter: i64, exit: i64, mpi_before: Option<MpiBefore>) -> CollectiveCall {
        let function = CollectiveFunction::named(b"MPI_Barrier").unwrap();
        CollectiveCall { mpi_before, ..CollectiveCall::new(function, enter, Some(exit)).numbered(WORLD, seq) }
    }

    fn own_times(mut process: ProcessCollectives, everyone: u32) -> Vec<Option<i64>> {
        note_own_times(&mut process, &BTreeMap::from([(WORLD, 2)]), everyone);
        process.calls.iter().map(|call| call.own_time.map(|own| own.ns)).collect()
    }

    #[test]
    fn own_time_begins_after_init_and_leaves_out_messages_and_polls() {
        let mut process = ProcessCollectives::default();
        let mpi = &mut process.mpi;
        assert!(mpi.add(1, Initializes, 0, Some(1_000_000)).is_some());
        let mut calls = vec![barrier(1, 1_400_000, 1_500_000, mpi.add(1, Other, 1_400_000, Some(1_500_000)))];
        let _ = mpi.add(1, Other, 1_600_000, Some(1_900_000));
        for at in [2_000_000, 2_050_000, 2_100_000, 3_000_000] {
            let _ = mpi.add(1, Polls, at, Some(at + 10_000));
        }
        calls.push(barrier(2, 3_020_000, 3_030_000, mpi.add(1, Other, 3_020_000, Some(3_030_000))));
        calls.push(barrier(3, 3_040_000, 3_050_000, mpi.add(2, Other, 3_040_000, Some(3_050_000))));
        process.calls = calls;
        assert_eq!(process.mpi.initialized(), Some(1_000_000));
        // Own time of the second collective: 100 us before the message, 100 us before the polls, and 10 us. The
        // gap between two polls is 890 us.
        assert_eq!(own_times(process.clone(), 2), [Some(400_000), Some(210_000), None]);
        assert_eq!(
            own_times(process.clone(), 9),
            [Some(400_000), Some(210_000), None],
            "on a communicator of some"
        );
        note_own_times(&mut process, &BTreeMap::from([(WORLD, 2)]), 2);
        let gaps = process.calls.iter().map(|call| call.own_time.map(|own| own.poll_gaps_ns));
        assert_eq!(gaps.collect::<Vec<_>>(), [Some(0), Some(890_000), None]);
    }

    proptest! {
        /// Calls of one thread, split into blocks at arbitrary points: gap before the call, its length, whether
        /// it is a barrier.
        #[test]
        fn own_time_is_the_sum_of_the_gaps_however_the_calls_lie_in_blocks(
            calls in proptest::collection::vec((0i64..1_000_000, 0i64..1_000_000, any::<bool>()), 1..40),
            blocks in proptest::collection::vec(1usize..10, 1..10),
        ) {
            let (mut now, mut expected, mut gaps) = (0, Vec::new(), None);
            let mut rows = Vec::new();
            for (gap, length, is_barrier) in &calls {
                gaps = gaps.map(|sum: i64| sum + gap);
                now += gap;
                rows.push((now, now + length, *is_barrier));
                now += length;
                if *is_barrier {
                    expected.push(gaps);
                    gaps = Some(0);
                }
            }
            let (mut process, mut seq, mut rest) = (ProcessCollectives::default(), 0, rows.as_slice());
            for block in blocks.iter().cycle() {
                let (some, others) = rest.split_at((*block).min(rest.len()));
                let mut one = ProcessCollectives::default();
                for (enter, exit, is_barrier) in some {
                    let before = one.mpi.add(1, Other, *enter, Some(*exit));
                    if *is_barrier {
                        seq += 1;
                        one.calls.push(barrier(seq, *enter, *exit, before));
                    }
                }
                process.mpi.append(std::mem::take(&mut one.mpi), &mut one.calls);
                process.calls.append(&mut one.calls);
                rest = others;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(own_times(process, 2), expected);
        }
    }
}
