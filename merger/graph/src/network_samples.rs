//! How long messages between nodes take, by sender, receiver and kind of call.
//!
//! Two upper limits of the time of a message are kept: from its send to the end of the call that receives it, by the clocks
//! of two nodes, and from the time at which the receiver had nothing else to wait for, by its own clock. The time of a
//! message that arrives before the receiver waits for it is not seen: then the second one is short.

use crate::channels::EndRef;
use crate::job_calls::{CallTimeline, JobCalls, MessageRole};
use crate::message_calls::CallPlace;
use crate::messages::MatchedMessages;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Parts of the run within which times are compared.
pub(crate) const BLOCKS: usize = 32;
/// Maximum number of samples of a flow in a block, of which a thread adds so many.
const MAX_SAMPLES: usize = 8;
const MAX_OF_THREAD: usize = 2;
/// Maximum number of flows. It limits the memory to about 100 MB.
const MAX_FLOWS: usize = 1 << 14;
/// Maximum number of flows to one thread: few, as the flows of many threads are in memory at once.
const MAX_FLOWS_OF_THREAD: usize = 1 << 8;
/// Number of threads whose flows are in memory at once.
const THREADS_AT_ONCE: usize = 256;
/// Calls that receive from more nodes are left out.
const MAX_SENDERS: usize = 8;
/// MPI libraries copy messages up to this size, bytes. Larger ones may be sent only while the sender is in a call.
const MAX_COPIED: u32 = 4 << 10;

/// Messages that are compared with one another: calls of one function that receive about as many bytes from a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FlowClass {
    /// Label of the call that completes the receives.
    pub(crate) label: u32,
    /// Class of the size: within one, sizes differ by less than a quarter.
    pub(crate) size: u16,
}

/// Messages from one node to another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FlowKey {
    pub(crate) class: FlowClass,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Other nodes from which the same calls receive, ascending: their messages may be what the calls wait for.
    pub(crate) others: Vec<u32>,
}

impl FlowKey {
    /// Returns whether the calls send to a node or receive from it.
    pub(crate) fn involves(&self, node: u32) -> bool {
        self.from == node || self.to == node || self.others.contains(&node)
    }
}

/// A call that receives messages of another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowSample {
    /// From the last send of another node to the end of the call, ns: by two clocks, so it may be negative.
    pub(crate) since_send_ns: i64,
    /// From its beginning, or the last send within its node, to the end of the call, ns.
    pub(crate) in_call_ns: u64,
    /// Sum of the error bounds of both clocks, ns; `None` if one is not known.
    pub(crate) clock_bound_ns: Option<u64>,
}

/// The samples of a flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowSamples {
    pub(crate) blocks: Vec<Vec<FlowSample>>,
    /// Number of calls, also those without a sample.
    pub(crate) calls: u64,
}

impl Default for FlowSamples {
    fn default() -> FlowSamples {
        FlowSamples { blocks: vec![Vec::new(); BLOCKS], calls: 0 }
    }
}

impl FlowSamples {
    fn add(&mut self, block: usize, sample: FlowSample, max: usize) {
        self.calls += 1;
        if self.blocks[block].len() < max {
            self.blocks[block].push(sample);
        }
    }
}

/// Samples by flow.
pub(crate) type NetworkFlows = BTreeMap<FlowKey, FlowSamples>;

/// Adds the samples of a thread to a flow. Of too many flows, the later ones are left out.
fn join_flow(flows: &mut NetworkFlows, key: FlowKey, added: FlowSamples) {
    if flows.len() >= MAX_FLOWS && !flows.contains_key(&key) {
        return;
    }
    let flow = flows.entry(key).or_default();
    flow.calls += added.calls;
    for (samples, mut more) in flow.blocks.iter_mut().zip(added.blocks) {
        more.truncate(MAX_SAMPLES.saturating_sub(samples.len()));
        samples.append(&mut more);
    }
}

/// Reads the messages between nodes of a job.
pub(crate) struct NetworkReader<'a> {
    job: &'a JobCalls,
    messages: &'a MatchedMessages,
    completed_in: Vec<Vec<Option<CallPlace>>>,
}

/// A call that receives from other nodes.
#[derive(Clone, Debug)]
pub(crate) struct ReceivingCall {
    pub(crate) call: u32,
    /// Nodes that send, ascending, with the bytes of each.
    pub(crate) senders: Vec<(u32, u64)>,
    /// The last send of another node, ns in job time.
    last_far_ns: i64,
    /// The last send of its own node, ns in job time.
    last_near_ns: i64,
    /// The largest error bound of the senders, ns.
    bound_ns: Option<u64>,
}

impl<'a> NetworkReader<'a> {
    pub(crate) fn new(job: &'a JobCalls, messages: &'a MatchedMessages) -> NetworkReader<'a> {
        NetworkReader { job, messages, completed_in: job.completing_calls() }
    }

    /// Returns the samples of all flows.
    pub(crate) fn flows(&self) -> NetworkFlows {
        let timelines: Vec<usize> = (0..self.job.timelines.len()).collect();
        let mut flows = NetworkFlows::new();
        for some in timelines.chunks(THREADS_AT_ONCE) {
            let of_some: Vec<NetworkFlows> =
                some.par_iter().map(|timeline| self.flows_to(*timeline)).collect();
            of_some.into_iter().flatten().for_each(|(key, added)| join_flow(&mut flows, key, added));
        }
        flows
    }

    fn flows_to(&self, timeline: usize) -> NetworkFlows {
        let own = &self.job.timelines[timeline];
        let length = own.end_ns.saturating_sub(own.start_ns).max(1) as f64;
        let mut flows = NetworkFlows::new();
        for receiving in self.receiving_calls(timeline) {
            let call = &own.calls[receiving.call as usize];
            let (enter_ns, exit_ns) = (call.enter_ns, call.exit_ns());
            let place = enter_ns.saturating_sub(own.start_ns) as f64 / length * BLOCKS as f64;
            let bound = own.error_bound_at(exit_ns).zip(receiving.bound_ns);
            let from_own = exit_ns.saturating_sub(enter_ns.max(receiving.last_near_ns));
            let sample = FlowSample {
                since_send_ns: exit_ns.saturating_sub(receiving.last_far_ns),
                in_call_ns: u64::try_from(from_own).unwrap_or(0),
                clock_bound_ns: bound.map(|(own, other)| own.saturating_add(other)),
            };
            for key in self.keys(own, &receiving) {
                if flows.len() < MAX_FLOWS_OF_THREAD || flows.contains_key(&key) {
                    flows.entry(key).or_default().add(
                        (place as usize).min(BLOCKS - 1),
                        sample,
                        MAX_OF_THREAD,
                    );
                }
            }
        }
        flows
    }

    /// Returns the flows to which a call belongs.
    pub(crate) fn keys(&self, own: &CallTimeline, receiving: &ReceivingCall) -> Vec<FlowKey> {
        let label = own.calls[receiving.call as usize].label;
        let key = |(from, bytes): &(u32, u64)| {
            let others = receiving.senders.iter().map(|(node, _)| *node).filter(|node| node != from);
            let class = FlowClass { label, size: size_class(*bytes) };
            FlowKey { class, from: *from, to: own.node, others: others.collect() }
        };
        match receiving.senders.len() {
            0..=MAX_SENDERS => receiving.senders.iter().map(key).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the calls of a thread that receive messages of other nodes, in their order.
    pub(crate) fn receiving_calls(&self, timeline: usize) -> Vec<ReceivingCall> {
        let own = &self.job.timelines[timeline];
        if own.is_stream {
            return Vec::new();
        }
        let mut ends: Vec<(u32, usize)> = Vec::new();
        for (number, completed) in self.completed_in[timeline].iter().enumerate() {
            if let Some((of, call)) = completed
                && *of as usize == timeline
            {
                ends.push((*call, number));
            }
        }
        ends.sort_unstable();
        let of_call = |ends: &[(u32, usize)]| self.receiving_call(timeline, ends);
        ends.chunk_by(|one, other| one.0 == other.0).filter_map(of_call).collect()
    }

    /// Describes a call by the message ends that it completes. `None`, if it receives nothing from other nodes, or if the other
    /// end of a message is not known.
    fn receiving_call(&self, timeline: usize, ends: &[(u32, usize)]) -> Option<ReceivingCall> {
        let own = &self.job.timelines[timeline];
        let call = ends.first()?.0;
        let exit_ns = own.calls[call as usize].exit_ns();
        let mut found = ReceivingCall {
            call,
            senders: Vec::new(),
            last_far_ns: i64::MIN,
            last_near_ns: i64::MIN,
            bound_ns: Some(0),
        };
        for (_, number) in ends {
            let end = &own.message_ends[*number];
            if end.role == MessageRole::Probe || end.peer < 0 && end.peer != crate::job_calls::ANY {
                continue;
            }
            let is_send = end.role.is_send();
            if is_send && end.role != MessageRole::SynchronousSend && end.assumed_bytes() <= MAX_COPIED {
                continue;
            }
            let partner = self.messages.partner(timeline, *number)?;
            let other = &self.job.timelines[partner.timeline as usize];
            let begun_ns = match is_send {
                true => self.posted_ns(partner),
                false => self.sent_ns(partner, exit_ns),
            };
            if other.node == own.node {
                found.last_near_ns = found.last_near_ns.max(begun_ns);
                continue;
            }
            found.last_far_ns = found.last_far_ns.max(begun_ns);
            let bounds = found.bound_ns.zip(other.error_bound_at(begun_ns));
            found.bound_ns = bounds.map(|(one, other)| one.max(other));
            if !is_send {
                let sent = &other.message_ends[partner.end as usize];
                let bytes = u64::from(sent.assumed_bytes());
                match found.senders.binary_search_by_key(&other.node, |(node, _)| *node) {
                    Ok(place) => found.senders[place].1 = found.senders[place].1.saturating_add(bytes),
                    Err(place) => found.senders.insert(place, (other.node, bytes)),
                }
            }
        }
        (!found.senders.is_empty()).then_some(found)
    }

    fn posted_ns(&self, end: EndRef) -> i64 {
        let timeline = &self.job.timelines[end.timeline as usize];
        timeline.calls[timeline.message_ends[end.end as usize].call as usize].enter_ns
    }

    /// Returns when a message was sent that was received before `received_ns`, ns in job time: a large one, of which another
    /// call sees the end, perhaps only in that call, as the sender works in between.
    fn sent_ns(&self, end: EndRef, received_ns: i64) -> i64 {
        let posted_ns = self.posted_ns(end);
        let sender = &self.job.timelines[end.timeline as usize];
        let sent = &sender.message_ends[end.end as usize];
        if sent.is_blocking || sent.assumed_bytes() <= MAX_COPIED {
            return posted_ns;
        }
        let completed = self.completed_in[end.timeline as usize][end.end as usize];
        let completed_ns = completed
            .map(|(timeline, call)| self.job.timelines[timeline as usize].calls[call as usize].enter_ns);
        completed_ns.filter(|ns| *ns < received_ns).map_or(posted_ns, |ns| ns.max(posted_ns))
    }
}

/// Returns the class of a size: its first three binary digits, and how many follow. Sizes up to 1 KiB are one class, as
/// such messages take about equally long.
fn size_class(bytes: u64) -> u16 {
    let bytes = bytes.max(1 << 10);
    let more = u64::BITS - bytes.leading_zeros() - 3;
    (more as u16) << 3 | (bytes >> more) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_a_class_differ_by_less_than_a_quarter() {
        let mut first = 1_024u64;
        for bytes in 1_024..200_000u64 {
            if size_class(bytes) != size_class(first) {
                assert!(size_class(bytes) > size_class(first));
                first = bytes;
            }
            assert!((bytes as f64) < first as f64 * 1.25, "{bytes} {first}");
        }
        assert_eq!(size_class(0), size_class(1_024));
    }
}
