//! Estimates the message size above which a send waits until its receive is posted, from sends to late receivers.
//!
//! An MPI library copies small messages (*eager*) and lets large ones wait for their receive. The limit depends on
//! the library and the network, and differs within a node and between nodes.

use crate::call_graph::is_near;
use crate::job_calls::{JobCalls, MessageRole};
use crate::messages::MatchedMessages;

/// Classes of sizes, by powers of two.
pub(crate) const SIZES: usize = 65;
/// A receiver is late if it posts its receive this many median durations of a send after the send began.
const MIN_LATE_DURATIONS: u64 = 10;

/// The smallest size of messages that wait for their receive: between nodes, and within a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EagerLimits([Option<usize>; 2]);

impl EagerLimits {
    /// Returns whether a send of this size waits for its receive.
    pub(crate) fn waits_for_receive(&self, is_near: bool, bytes: u64) -> bool {
        self.0[usize::from(is_near)].is_some_and(|first| size_class(bytes) >= first)
    }

    /// Measures the limits from the blocking sends of a job.
    pub(crate) fn measure(job: &JobCalls, messages: &MatchedMessages) -> EagerLimits {
        let mut durations: [Vec<Vec<u64>>; 2] = [vec![Vec::new(); SIZES], vec![Vec::new(); SIZES]];
        let mut sends = Vec::new();
        for (timeline, calls) in job.timelines.iter().enumerate() {
            for (number, end) in calls.message_ends.iter().enumerate() {
                if end.role != MessageRole::Send || !end.is_blocking {
                    continue;
                }
                let Some(partner) = messages.partner(timeline, number) else { continue };
                let other = &job.timelines[partner.timeline as usize];
                let receive = &other.calls[other.message_ends[partner.end as usize].call as usize];
                let send = &calls.calls[end.call as usize];
                let (near, class) =
                    (usize::from(is_near(calls, other)), size_class(end.assumed_bytes().into()));
                // A call that also receives may wait for that message as well.
                let Some((start_ns, start_bound)) = own_wait_over(job, messages, timeline, number) else {
                    continue;
                };
                let lasted_ns = u64::try_from(send.exit_ns().saturating_sub(start_ns)).unwrap_or(0);
                durations[near][class].push(lasted_ns);
                let [sent, received] =
                    [calls.error_bound_at(send.enter_ns), other.error_bound_at(receive.enter_ns)];
                let bound = match (near, sent.zip(received)) {
                    (1, _) => 0,
                    (_, Some((own, other))) => own.saturating_add(other),
                    (_, None) => continue,
                };
                let bound = bound.saturating_add(start_bound);
                let late_ns = receive.enter_ns.saturating_sub(start_ns);
                let Ok(late_ns) = u64::try_from(late_ns) else { continue };
                sends.push(LateReceive { near, class, late_ns, bound, lasted_ns });
            }
        }
        let typical = durations.map(|by_size| by_size.into_iter().map(median).collect::<Vec<u64>>());
        let mut votes = [[(0u64, 0u64); SIZES]; 2];
        for send in &sends {
            // All sends of a class may wait, so the median of the smallest class counts as well.
            let usual = typical[send.near].iter().copied().filter(|ns| *ns > 0).min().unwrap_or(0);
            let usual = usual.min(typical[send.near][send.class]);
            if send.late_ns > usual.saturating_mul(MIN_LATE_DURATIONS).saturating_add(send.bound) {
                let (lasted, all) = &mut votes[send.near][send.class];
                *all += 1;
                *lasted += u64::from(send.lasted_ns.saturating_add(send.bound) >= send.late_ns);
            }
        }
        EagerLimits(votes.map(|by_size| limit(&by_size)))
    }
}

/// Returns from when on a send can only have waited for its receive, ns: its start, or that of the message that its call
/// receives, with the error bound of that. `None` if it is not known.
fn own_wait_over(
    job: &JobCalls,
    messages: &MatchedMessages,
    timeline: usize,
    send: usize,
) -> Option<(i64, u64)> {
    let calls = &job.timelines[timeline];
    let end = &calls.message_ends[send];
    let enter_ns = calls.calls[end.call as usize].enter_ns;
    let is_received = |number: &usize| {
        let other = calls.message_ends.get(*number);
        other.is_some_and(|other| other.call == end.call && other.role == MessageRole::Receive)
    };
    // The two ends of a call that sends and receives follow each other.
    let Some(received) = [send.wrapping_sub(1), send + 1].into_iter().find(is_received) else {
        return Some((enter_ns, 0));
    };
    let partner = messages.partner(timeline, received)?;
    let other = &job.timelines[partner.timeline as usize];
    let sent_ns = other.calls[other.message_ends[partner.end as usize].call as usize].enter_ns;
    let bound = match is_near(calls, other) {
        true => 0,
        false => calls.error_bound_at(enter_ns)?.saturating_add(other.error_bound_at(sent_ns)?),
    };
    Some((enter_ns.max(sent_ns), bound))
}

struct LateReceive {
    near: usize,
    class: usize,
    late_ns: u64,
    bound: u64,
    lasted_ns: u64,
}

/// Returns the smallest class from which on most sends with a late receiver lasted until it came.
fn limit(votes: &[(u64, u64); SIZES]) -> Option<usize> {
    let mut first = None;
    for (class, (lasted, all)) in votes.iter().enumerate().rev().filter(|(_, (_, all))| *all > 0) {
        if lasted * 2 <= *all {
            break;
        }
        first = Some(class);
    }
    first
}

/// Returns the class of a size: the number of its bits.
pub(crate) fn size_class(bytes: u64) -> usize {
    (u64::BITS - bytes.leading_zeros()) as usize
}

/// Returns the lower median; 0 of nothing.
fn median(mut values: Vec<u64>) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}
