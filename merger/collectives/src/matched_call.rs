//! Decides whether the calls with one number on one communicator are one collective.

use super::functions::{CollectiveFunction, DataPattern, FunctionWaits};
use super::own_time::OwnTime;
use super::participants::{JobMembers, JobParticipant};
use super::process_calls::CollectiveCall;
use super::sample::sample_key;
use super::untimed::UntimedCalls;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A call on its way to the merge rank that compares it. Ordered by communicator, number and participant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct CallRecord {
    pub(super) comm: u64,
    pub(super) seq: u64,
    pub(super) participant: u32,
    /// Number of processes of the communicator.
    members: u32,
    pub(super) function: CollectiveFunction,
    /// Rank of the participant in the communicator.
    rank: Option<u32>,
    root: Option<u32>,
    size: Option<i64>,
    pub(super) enter: i64,
    pub(super) exit: Option<i64>,
    unrelated_exit: Option<i64>,
    own_time: Option<OwnTime>,
}

impl CallRecord {
    pub(super) fn new(
        call: &CollectiveCall,
        participant: u32,
        members: u32,
        rank: Option<u32>,
    ) -> CallRecord {
        let CollectiveCall { comm, seq, function, root, size, enter, exit, unrelated_exit, own_time, .. } =
            *call;
        CallRecord {
            comm,
            seq,
            participant,
            members,
            function,
            rank,
            root,
            size,
            enter,
            exit,
            unrelated_exit,
            own_time,
        }
    }

    /// Returns the time inside the call, ns. A call without an end lasts until its process was last seen.
    pub(super) fn time_inside(&self, members: &JobMembers) -> i64 {
        if self.function.only_starts() || self.function.is_rccl() {
            return 0;
        }
        let seen = |one: &JobParticipant| one.first_seen.saturating_add(one.seen_ns);
        let end = self.exit.or(self.unrelated_exit).or_else(|| members.get(self.participant).map(seen));
        end.map_or(0, |end| end.saturating_sub(self.enter).max(0))
    }

    /// Sums up calls with one number on one communicator that are not compared; `None` if they took no
    /// time.
    pub(super) fn untimed(calls: &[CallRecord], members: &JobMembers) -> Option<UntimedCalls> {
        let CallRecord { function, participant, enter, .. } = *calls.first()?;
        let times = calls.iter().map(|call| call.time_inside(members));
        let ns = times.fold(0, i64::saturating_add);
        (ns > 0).then_some(UntimedCalls { function, participant, enter, ns })
    }

    /// Describes the call: function, size and root.
    pub(super) fn describe(&self) -> String {
        self.function.describe(self.size, self.root)
    }
}

/// The call of one rank in a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankCall {
    /// Index of the rank among the participants of the job.
    pub participant: u32,
    /// Rank in the communicator, where it is recorded.
    pub rank: Option<u32>,
    /// Entry time, ns of the clock domain of the rank.
    pub enter: i64,
    /// Exit time, ns of the clock domain of the rank.
    pub exit: i64,
    /// Own time of the rank before the call, where it is known.
    pub own_time: Option<OwnTime>,
}

/// A collective that all of its ranks called alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchedCollective {
    /// Hash of the communicator.
    pub comm: u64,
    /// Sequence number on the communicator.
    pub seq: u64,
    /// The function.
    pub function: CollectiveFunction,
    /// Hash of function and size. Calls of one kind take about the same time.
    pub kind: u64,
    /// Whether the call is unnumbered: only the order of calls shows that it is one collective.
    pub is_unnumbered: bool,
    /// Which ranks wait for which.
    pub waits: FunctionWaits,
    /// Rank of the root in the communicator.
    pub root: Option<u32>,
    /// Calls of its ranks, by participant; empty if the times do not show when ranks waited.
    pub calls: Vec<RankCall>,
}

impl MatchedCollective {
    /// Returns whether its times show when ranks waited.
    pub fn is_timed(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns the time that all ranks spent in the collective, ns.
    pub(super) fn time_inside(&self) -> i64 {
        let times = self.calls.iter().map(|call| call.exit.saturating_sub(call.enter).max(0));
        times.fold(0, i64::saturating_add)
    }
}

/// Result of comparing the calls of one collective.
pub(super) enum MatchVerdict {
    Matched(MatchedCollective),
    /// Calls of some ranks are missing.
    Incomplete,
    /// The calls at these two indices differ.
    Different(usize, usize),
    /// The first participant left before the second one, on the same node, had entered.
    Contradicted(u32, u32),
}

/// Compares the calls with one number on one communicator. `calls` are ordered by participant. Returns `None` if
/// the communicator has only one process.
pub(super) fn judge(calls: &[CallRecord], members: &JobMembers) -> Option<MatchVerdict> {
    let first = calls.first().filter(|first| first.members > 1)?;
    let again = calls.windows(2).position(|pair| pair[0].participant == pair[1].participant);
    if let Some(i) = again {
        return Some(MatchVerdict::Different(i, i + 1));
    }
    let is_other = |known: &CallRecord, call: &CallRecord| {
        let roots = known.root.zip(call.root).is_some_and(|(a, b)| a != b);
        let sizes = known.size.zip(call.size).is_some_and(|(a, b)| a != b);
        known.function != call.function || roots || sizes && known.function.data() == DataPattern::Same
    };
    // If the first call has no root or no size, the first call that has one is the reference.
    let knowing = |knows: &dyn Fn(&CallRecord) -> bool| calls.iter().position(knows).unwrap_or(0);
    for base in [0, knowing(&|call| call.root.is_some()), knowing(&|call| call.size.is_some())] {
        if let Some(other) = calls.iter().position(|call| is_other(&calls[base], call)) {
            return Some(MatchVerdict::Different(base.min(other), base.max(other)));
        }
    }
    if calls.len() < first.members as usize {
        return Some(MatchVerdict::Incomplete);
    }
    let waits = first.function.waits();
    let root = calls.iter().find_map(|call| call.root);
    let kind = sample_key(u64::from(first.function.byte()), first.size.unwrap_or(-1) as u64);
    let CallRecord { comm, seq, function, .. } = *first;
    let mut matched =
        MatchedCollective { comm, seq, function, kind, is_unnumbered: false, waits, root, calls: Vec::new() };
    if !calls.iter().all(has_data) || waits == FunctionWaits::Unknown {
        return Some(MatchVerdict::Matched(matched));
    }
    let rank_call = |call: &CallRecord| {
        let CallRecord { participant, rank, enter, own_time, .. } = *call;
        Some(RankCall { participant, rank, enter, exit: call.exit?, own_time })
    };
    matched.calls = calls.iter().map(rank_call).collect::<Option<_>>().unwrap_or_default();
    Some(match contradiction(&matched.calls, members).filter(|_| waits == FunctionWaits::AllForAll) {
        Some((left, entered)) => MatchVerdict::Contradicted(left, entered),
        None => MatchVerdict::Matched(matched),
    })
}

/// Returns whether a rank transfers data. RCCL calls without a size count as having data, because their kernels
/// do transfer some. Gloo calls have a size only where torch records shapes, and an empty tensor is rare.
fn has_data(call: &CallRecord) -> bool {
    match call.function.data() {
        DataPattern::None => true,
        DataPattern::Same | DataPattern::Own => {
            call.size.map_or(call.function.is_rccl() || call.function.is_gloo(), |size| size > 0)
        }
    }
}

/// Finds two ranks on one clock of which one left before the other entered. Returns the first to leave and the
/// last to enter, of the first such clock domain.
fn contradiction(calls: &[RankCall], members: &JobMembers) -> Option<(u32, u32)> {
    let mut by_domain = BTreeMap::new();
    for call in calls {
        let Some(participant) = members.get(call.participant) else { continue };
        let (last, first) = by_domain.entry(&participant.domain).or_insert((call, call));
        *last = if call.enter > last.enter { call } else { last };
        *first = if call.exit < first.exit { call } else { first };
    }
    let early = by_domain.values().find(|(last, first)| last.enter > first.exit);
    early.map(|(last, first)| (first.participant, last.participant))
}
