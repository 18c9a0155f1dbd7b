//! The messages between each two processes: how many, of which size, and how long one waited for the other.

use crate::analysis::WaitAnalysis;
use crate::channels::{GroupIndex, MessagePeer};
use crate::job_calls::{MessageEnd, MessageRole};
use crate::message_calls::CallPlace;
use std::collections::{BTreeMap, HashMap};

/// Messages of one process to another that the same function sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageFlow {
    /// Process that sends; `None` if it is not known.
    pub from: Option<u32>,
    /// Process that receives; `None` if it is not known.
    pub to: Option<u32>,
    /// Label of the call that sends or starts the send; where no send is known, of the call that receives.
    pub label: u32,
    /// Number of sends.
    pub count: u64,
    /// Size of all sends, bytes. `None` if one of them has [`MessageEnd::MAX_BYTES`] or more, or its size is not recorded.
    pub bytes: Option<u64>,
    /// Time that the receiver waited for the sends, ns.
    pub late_sender_ns: u64,
    /// Time that the sender waited for the receives, ns.
    pub late_receiver_ns: u64,
    /// Lower median of the time of a call that receives one message, without its waiting, ns. `None` if no call
    /// receives one of these messages alone.
    pub median_ns: Option<u64>,
    /// Number of sends and receives without a match.
    pub unmatched_ends: u64,
}

/// Processes and label of a flow.
type FlowKey = (Option<u32>, Option<u32>, u32);

#[derive(Debug, Default)]
struct FlowSums {
    flow: MessageFlow,
    bytes: u64,
    has_unknown_bytes: bool,
    times_ns: Vec<u64>,
}

impl WaitAnalysis<'_> {
    /// Returns the messages by sender, receiver and label, in this order. Messages to `MPI_PROC_NULL` are none.
    pub fn message_flows(&self) -> Vec<MessageFlow> {
        let job = self.graph.job;
        let completed_in = job.completing_calls();
        let mut waits = self.waits_for_one();
        let mut received_in: HashMap<CallPlace, u32> = HashMap::new();
        self.for_each_end(|timeline, number, end| {
            if end.role == MessageRole::Receive
                && let Some(call) = completed_in[timeline][number]
            {
                *received_in.entry(call).or_default() += 1;
            }
        });
        let mut groups = GroupIndex::new(&job.communicators);
        let mut flows: BTreeMap<FlowKey, FlowSums> = BTreeMap::new();
        self.for_each_end(|timeline, number, end| {
            let own = job.timelines[timeline].process;
            let label_of = |timeline: usize, call: u32| job.timelines[timeline].calls[call as usize].label;
            let partner = self.graph.partner(timeline, number);
            let other = match partner {
                Some((other, _)) => Some(job.timelines[other].process),
                None if end.peer == crate::job_calls::ANY => None,
                // Negative are MPI_PROC_NULL and other values that are no rank.
                None if end.peer < 0 => return,
                None => match groups.peer_of(end.communicator, own, end.peer) {
                    MessagePeer::Process(peer) => Some(peer),
                    MessagePeer::Unknown | MessagePeer::Nobody => None,
                },
            };
            let is_send = end.role.is_send();
            let (from, to) = if is_send { (Some(own), other) } else { (other, Some(own)) };
            let other_end = partner.map(|(other, end)| (other, job.timelines[other].message_ends[end].call));
            let label = match other_end {
                Some((other, call)) if !is_send => label_of(other, call),
                _ => label_of(timeline, end.call),
            };
            if end.role == MessageRole::Probe && partner.is_none() {
                return;
            }
            let sums = flows.entry((from, to, label)).or_default();
            let flow = &mut sums.flow;
            if is_send {
                flow.count += 1;
                sums.bytes = sums.bytes.saturating_add(end.bytes.into());
                sums.has_unknown_bytes |= end.bytes >= MessageEnd::MAX_BYTES;
            }
            let Some((other, other_call)) = other_end else {
                flow.unmatched_ends += 1;
                return;
            };
            let Some(call) = completed_in[timeline][number] else { return };
            if let Some(wait) = waits.get_mut(&call)
                && wait.cause == (other as u32, other_call)
            {
                // A call may receive several messages that one call of the other started.
                let waited_ns = std::mem::take(&mut wait.ns);
                let sum = if is_send { &mut flow.late_receiver_ns } else { &mut flow.late_sender_ns };
                *sum = sum.saturating_add(waited_ns);
            }
            if end.role == MessageRole::Receive && received_in.get(&call) == Some(&1) {
                sums.times_ns.push(self.times.transfer_ns(call.0 as usize, call.1 as usize));
            }
        });
        let finished = flows.into_iter().map(|((from, to, label), mut sums)| {
            let middle = sums.times_ns.len().checked_sub(1).map(|last| last / 2);
            let median_ns = middle.map(|middle| *sums.times_ns.select_nth_unstable(middle).1);
            let bytes = (!sums.has_unknown_bytes).then_some(sums.bytes);
            MessageFlow { from, to, label, bytes, median_ns, ..sums.flow }
        });
        finished.collect()
    }

    fn for_each_end(&self, mut visit: impl FnMut(usize, usize, &MessageEnd)) {
        for (timeline, calls) in self.graph.job.timelines.iter().enumerate() {
            calls.message_ends.iter().enumerate().for_each(|(number, end)| visit(timeline, number, end));
        }
    }

    /// Returns the waits of calls that waited for one call of another thread.
    fn waits_for_one(&self) -> HashMap<CallPlace, WaitForOne> {
        let mut waits: HashMap<CallPlace, WaitForOne> = HashMap::new();
        for wait in &self.waits {
            let found = WaitForOne { cause: (wait.cause, wait.cause_call), ns: wait.ns };
            // Members of a collective that came last together are several.
            waits.entry((wait.timeline, wait.call)).and_modify(|known| known.ns = 0).or_insert(found);
        }
        waits
    }
}

/// A wait for one call.
#[derive(Clone, Copy, Debug)]
struct WaitForOne {
    cause: CallPlace,
    /// Time that is not in a flow yet, ns.
    ns: u64,
}

#[cfg(test)]
mod tests {
    use crate::call_graph::CallGraph;
    use crate::small_job::{Act, CALL_NS, IN_CALL, run};
    use crate::{MessageEnd, MessageFlow, WaitAnalysis};

    fn flows(programs: &[Vec<Act>]) -> Vec<MessageFlow> {
        let job = run(programs, 2);
        let graph = CallGraph::new(&job).unwrap();
        WaitAnalysis::new(&graph).message_flows()
    }

    #[test]
    fn the_receiver_waits_for_a_late_sender() {
        let sender = (1..=5).flat_map(|n| [Act::Step, Act::Work(1, n * 10_000), Act::Send(1, 0)]).collect();
        let receiver = (1..=5).flat_map(|_| [Act::Step, Act::Work(1, 1_000), Act::Receive(0, 0)]).collect();
        let found = flows(&[sender, receiver]);
        // Each receive ends a call after its send began, which is later than the receive.
        let waited: u64 = (1..=5u64).map(|n| n * 10_000 - 1_000).sum();
        let expected = MessageFlow {
            from: Some(0),
            to: Some(1),
            label: IN_CALL,
            count: 5,
            bytes: Some(40),
            late_sender_ns: waited,
            late_receiver_ns: 0,
            median_ns: Some(CALL_NS as u64),
            unmatched_ends: 0,
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn the_size_of_sends_is_unknown_if_that_of_one_is_and_they_match_all_the_same() {
        let (sender, receiver) = (Act::Send(1, 0), Act::Receive(0, 0));
        let mut job = run(&[vec![Act::Step, sender, sender], vec![Act::Step, receiver, receiver]], 2);
        job.timelines[0].message_ends[1].bytes = MessageEnd::UNKNOWN_BYTES;
        let graph = CallGraph::new(&job).unwrap();
        let found = WaitAnalysis::new(&graph).message_flows();
        let [flow] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((flow.count, flow.bytes, flow.unmatched_ends), (2, None, 0));
    }

    #[test]
    fn ends_without_a_match_are_counted_where_they_are_known() {
        let sender = vec![Act::Step, Act::Send(1, 0), Act::Send(1, 1)];
        let found = flows(&[sender, vec![Act::Step, Act::Receive(0, 1)]]);
        let [flow] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((flow.count, flow.bytes, flow.unmatched_ends), (2, Some(16), 1));
    }
}
