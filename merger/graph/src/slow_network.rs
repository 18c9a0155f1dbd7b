//! Finds a node whose messages take longer than those of the others, or two nodes between which they do.

use crate::instances::{Instances, Member};
use crate::job_calls::{CollectiveWaits, JobCalls};
use crate::messages::MatchedMessages;
use crate::network_samples::{
    BLOCKS, FlowClass, FlowKey, FlowSamples, NetworkFlows, NetworkReader, ReceivingCall,
};
use crate::pair_times::{PairTimes, TimeComparison, mean_times, median, median_times};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer nodes have no messages with which those of one can be compared.
const MIN_NODES: usize = 3;
/// Messages take longer if they take so many times as long as others.
const MIN_RATIO: f64 = 1.5;
/// Probability of chance below which they do.
const MAX_P: f64 = 0.01;
/// If a node has a slow network, its messages with so many of the others take longer, and the rest of these are few.
const MIN_SLOW_SHARE: f64 = 0.75;
/// Maximum number of nodes that are compared with all others.
const MAX_TRIED: usize = 8;

/// Between which nodes messages take longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkSubject {
    /// Between one node and all others.
    Node(u32),
    /// Between two nodes.
    Link(u32, u32),
}

impl NetworkSubject {
    fn includes(self, key: &FlowKey) -> bool {
        match self {
            NetworkSubject::Node(node) => key.from == node || key.to == node,
            NetworkSubject::Link(one, other) => [(one, other), (other, one)].contains(&(key.from, key.to)),
        }
    }

    /// Returns whether calls may wait for such a message.
    fn affects(self, key: &FlowKey) -> bool {
        match self {
            NetworkSubject::Node(node) => key.involves(node),
            NetworkSubject::Link(one, other) => key.involves(one) && key.involves(other),
        }
    }
}

/// Messages that take longer than others of their class: messages of about the same size that the same function receives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlowMessages {
    /// Between which nodes.
    pub subject: NetworkSubject,
    /// Their time divided by that of messages between other nodes: the median over parts of the run.
    pub ratio: f64,
    /// Probability that chance makes them longer in as many parts of the run, by a sign test; multiplied by the number of
    /// nodes or pairs of nodes that were compared.
    pub p: f64,
    /// Median of the time of a message, ns: the mean of both directions if messages go both ways.
    pub time_ns: f64,
    /// The same between the other nodes, ns.
    pub typical_ns: f64,
    /// By how much they take longer, ns.
    pub excess_ns: f64,
    /// Larger part of the 95 % interval of `excess_ns` by the spread of the parts of the run, ns.
    pub spread_ns: f64,
    /// By how much the clocks of the nodes can be wrong about `excess_ns`, ns.
    pub clock_error_ns: f64,
    /// Label of the function that receives them.
    pub label: u32,
    /// Number of calls that receive such messages.
    pub calls: u64,
}

impl SlowMessages {
    /// Returns by which share of itself the excess can be wrong.
    pub(crate) fn relative_error(&self) -> f64 {
        ((self.spread_ns + self.clock_error_ns) / self.excess_ns.max(1.0)).min(1.0)
    }

    /// Returns whether the excess is more than the clocks of the nodes can be wrong about it.
    pub fn exceeds_clock_error(&self) -> bool {
        self.excess_ns > self.clock_error_ns
    }
}

/// A call that receives slow messages, or enters a collective that needs some.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SlowCall {
    pub(crate) call: u32,
    /// Typical time of the messages that it receives divided by their time.
    typical_share: f64,
    /// By how much the messages take longer that it receives, ns.
    pub(crate) message_ns: u64,
    /// By how much the messages take longer that the collective needs, ns.
    collective_ns: u64,
}

impl SlowCall {
    /// Returns the duration of the call without waiting if the messages took as long as others, ns, from that which it has.
    pub(crate) fn typical_ns(&self, transfer_ns: u64) -> u64 {
        let of_messages = (transfer_ns as f64 * self.typical_share) as u64;
        // A shorter collective did not wait for such messages.
        if of_messages >= self.collective_ns { of_messages - self.collective_ns } else { of_messages }
    }
}

/// Slow messages, and the calls that receive them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SlowNetwork {
    pub(crate) messages: SlowMessages,
    /// Calls that receive them by timeline, ascending.
    pub(crate) calls: Vec<Vec<SlowCall>>,
    /// Calls that enter collectives which need some, by timeline, ascending; empty, if the clocks do not show that the messages
    /// are slow.
    collective_calls: Vec<Vec<u32>>,
    /// By how much the messages take longer that such a collective needs, ns.
    there_and_back_ns: u64,
}

impl SlowNetwork {
    /// Finds slow messages.
    pub(crate) fn find(
        job: &JobCalls,
        messages: &MatchedMessages,
        instances: &Instances,
    ) -> Option<SlowNetwork> {
        let nodes: BTreeSet<u32> = job.timelines.iter().map(|timeline| timeline.node).collect();
        if nodes.len() < MIN_NODES {
            return None;
        }
        let reader = NetworkReader::new(job, messages);
        let flows = reader.flows();
        let classes: BTreeSet<FlowClass> = flows.keys().map(|key| key.class).collect();
        let of_class = |class: &FlowClass| Some((*class, ClassFlows::new(&flows, *class).slow_messages()?));
        let found: Vec<(FlowClass, SlowMessages)> =
            classes.iter().collect::<Vec<_>>().into_par_iter().filter_map(of_class).collect();
        let total = |of: &SlowMessages| of.excess_ns * of.calls as f64;
        let (first, largest) = found.into_iter().max_by(|(_, one), (_, other)| {
            let are_known = one.exceeds_clock_error().cmp(&other.exceeds_clock_error());
            are_known.then(total(one).total_cmp(&total(other)))
        })?;
        // Another class counts only if its excess is larger than both chance and the clocks can explain.
        let is_shown = |compared: &TimeComparison| {
            compared.ratio > MIN_RATIO && compared.p < MAX_P && compared.excess_ns > compared.error_bound_ns
        };
        let with_subject = |class: &FlowClass| {
            let compared = ClassFlows::new(&flows, *class).compare(largest.subject)?;
            (*class == first || is_shown(&compared)).then_some((*class, compared))
        };
        let slow: BTreeMap<FlowClass, TimeComparison> = classes.iter().filter_map(with_subject).collect();
        let calls = |timeline: usize| -> Vec<SlowCall> {
            let own = &job.timelines[timeline];
            let of_call = |receiving: &ReceivingCall| {
                let keys = reader.keys(own, receiving);
                let included = keys.iter().filter(|key| largest.subject.includes(key));
                let longer = included.filter_map(|key| slow.get(&key.class));
                longer.max_by(|one, other| one.excess_ns.total_cmp(&other.excess_ns)).map(|of| SlowCall {
                    call: receiving.call,
                    typical_share: (of.typical_ns / of.time_ns.max(1.0)).clamp(0.0, 1.0),
                    message_ns: of.excess_ns.max(0.0) as u64,
                    collective_ns: 0,
                })
            };
            reader.receiving_calls(timeline).iter().filter_map(of_call).collect()
        };
        let calls = (0..job.timelines.len()).into_par_iter().map(calls).collect();
        let collective_calls = match largest.subject {
            NetworkSubject::Node(node) if largest.exceeds_clock_error() => {
                collectives_of(job, instances, node)
            }
            _ => Vec::new(),
        };
        let there_and_back_ns = (2.0 * largest.excess_ns).max(0.0) as u64;
        Some(SlowNetwork { messages: largest, calls, collective_calls, there_and_back_ns })
    }

    /// Returns the slow messages that a call receives, or that the collective needs which it enters. Of a call with both, only
    /// the messages count that it receives.
    pub(crate) fn of_call(&self, timeline: usize, call: u32) -> Option<SlowCall> {
        let calls = self.calls.get(timeline)?;
        if let Ok(place) = calls.binary_search_by_key(&call, |slow| slow.call) {
            return calls.get(place).copied();
        }
        let found = self.collective_calls.get(timeline)?.binary_search(&call);
        let collective_ns = self.there_and_back_ns;
        found.is_ok().then_some(SlowCall { call, typical_share: 1.0, message_ns: 0, collective_ns })
    }
}

/// Returns the calls, by timeline and ascending, that enter a collective of a node and others in which every member waits for
/// all: it ends no sooner than a message of the node has reached the others, and one of the others the node.
fn collectives_of(job: &JobCalls, instances: &Instances, node: u32) -> Vec<Vec<u32>> {
    let mut calls = vec![Vec::new(); job.timelines.len()];
    for instance in 0..instances.len() as u32 {
        let members = instances.members(instance);
        let is_of_node = |member: &Member| job.timelines[member.timeline as usize].node == node;
        let waits_for_all = instances.get(instance).waits == CollectiveWaits::ForAll;
        if waits_for_all && members.iter().any(is_of_node) && !members.iter().all(is_of_node) {
            members.iter().for_each(|member| calls[member.timeline as usize].push(member.call));
        }
    }
    calls.par_iter_mut().for_each(|of_timeline| {
        of_timeline.sort_unstable();
        of_timeline.dedup();
        of_timeline.shrink_to_fit();
    });
    calls
}

/// The flows of a class.
struct ClassFlows<'a> {
    class: FlowClass,
    flows: Vec<(&'a FlowKey, &'a FlowSamples)>,
    /// The times of all pairs of nodes.
    pairs: Vec<PairTimes>,
}

impl<'a> ClassFlows<'a> {
    fn new(flows: &'a NetworkFlows, class: FlowClass) -> ClassFlows<'a> {
        let flows: Vec<_> = flows.iter().filter(|(key, _)| key.class == class).collect();
        let pairs = PairTimes::of_flows(flows.iter().copied());
        ClassFlows { class, flows, pairs }
    }

    /// Returns the times of pairs of nodes in calls that do not wait for messages of a subject.
    fn without(&self, subject: NetworkSubject) -> Vec<PairTimes> {
        PairTimes::of_flows(self.flows.iter().copied().filter(|(key, _)| !subject.affects(key)))
    }

    /// Returns the pairs of nodes that a subject is about.
    fn pairs_of(&self, subject: NetworkSubject) -> Vec<&PairTimes> {
        let is_one = |pair: &&PairTimes| match subject {
            NetworkSubject::Node(node) => pair.has(node),
            NetworkSubject::Link(one, other) => pair.nodes == (one, other),
        };
        self.pairs.iter().filter(is_one).collect()
    }

    /// Compares the messages of a subject with those of the others.
    fn compare(&self, subject: NetworkSubject) -> Option<TimeComparison> {
        let without = self.without(subject);
        let typical = median_times(&without.iter().collect::<Vec<_>>());
        TimeComparison::new(&mean_times(&self.pairs_of(subject)), &typical)
    }

    /// Returns the subject whose messages take longer, if there is one.
    fn slow_messages(&self) -> Option<SlowMessages> {
        // Messages of a slow node may be most of all, so that the median is one of theirs.
        let mut of_block: Vec<Vec<f64>> = vec![Vec::new(); BLOCKS];
        for pair in &self.pairs {
            for (times, time) in of_block.iter_mut().zip(&pair.blocks) {
                times.extend(time.map(|time| time.ns));
            }
        }
        let usual: Vec<Option<f64>> = of_block.into_iter().map(lower_quartile).collect();
        let longer = |pair: &PairTimes| {
            let ratios = pair.blocks.iter().zip(&usual);
            let ratios =
                ratios.filter_map(|(time, usual)| Some(time.as_ref()?.ns / usual.as_ref()?.max(1.0)));
            median(ratios.collect()).filter(|ratio| *ratio > MIN_RATIO)
        };
        let slow: Vec<(&PairTimes, f64)> =
            self.pairs.iter().filter_map(|pair| Some((pair, longer(pair)?))).collect();
        let mut of_node: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
        for (pair, ratio) in &slow {
            for node in [pair.nodes.0, pair.nodes.1] {
                let (pairs, sum) = of_node.entry(node).or_default();
                (*pairs, *sum) = (*pairs + 1, *sum + ratio);
            }
        }
        let pairs_of = |node: u32| self.pairs.iter().filter(|pair| pair.has(node)).count();
        let is_candidate = |(node, (slow, _)): &(&u32, &(usize, f64))| {
            *slow >= 2 && *slow as f64 >= MIN_SLOW_SHARE * pairs_of(**node) as f64
        };
        let mut candidates: Vec<(u32, f64)> = of_node
            .iter()
            .filter(is_candidate)
            .map(|(node, (pairs, sum))| (*node, sum / *pairs as f64))
            .collect();
        candidates.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        let nodes: BTreeSet<u32> = self.pairs.iter().flat_map(|pair| [pair.nodes.0, pair.nodes.1]).collect();
        let tried = candidates.iter().take(MAX_TRIED);
        let found = tried.filter_map(|(node, _)| self.test(NetworkSubject::Node(*node), nodes.len()));
        let found = found.max_by(|one, other| {
            let are_known = one.exceeds_clock_error().cmp(&other.exceeds_clock_error());
            are_known.then(one.excess_ns.total_cmp(&other.excess_ns))
        });
        found.or_else(|| match slow[..] {
            [(pair, _)] if self.pairs.len() >= MIN_NODES => {
                self.test(NetworkSubject::Link(pair.nodes.0, pair.nodes.1), self.pairs.len())
            }
            _ => None,
        })
    }

    /// Tests whether the messages of a subject take longer, and hardly any others.
    fn test(&self, subject: NetworkSubject, compared: usize) -> Option<SlowMessages> {
        let without = self.without(subject);
        let typical = median_times(&without.iter().collect::<Vec<_>>());
        let own = self.pairs_of(subject);
        let compared_pair = |pair: &PairTimes| {
            TimeComparison::new(&pair.blocks, &typical).filter(|found| found.ratio > MIN_RATIO)
        };
        let slow: Vec<TimeComparison> = own.iter().filter_map(|pair| compared_pair(pair)).collect();
        let is_certain = |found: &TimeComparison| found.excess_ns > found.error_bound_ns;
        let certain = slow.iter().filter(|found| is_certain(found)).count() as f64;
        let slow = slow.len() as f64;
        let other_slow = without.iter().filter_map(compared_pair).filter(is_certain).count() as f64;
        let stands_out = slow >= MIN_SLOW_SHARE * own.len() as f64
            && other_slow <= (1.0 - MIN_SLOW_SHARE) * without.len() as f64;
        let found = TimeComparison::new(&mean_times(&own), &typical)?;
        let p = (found.p * compared as f64).min(1.0);
        (stands_out && found.ratio > MIN_RATIO && p < MAX_P).then(|| SlowMessages {
            subject,
            ratio: found.ratio,
            p,
            time_ns: found.time_ns,
            typical_ns: found.typical_ns,
            excess_ns: found.excess_ns,
            spread_ns: found.spread_ns,
            // A neighbour of a slow node has one slow pair only: the clocks must show it of most.
            clock_error_ns: match certain >= MIN_SLOW_SHARE * own.len() as f64 {
                true => found.error_bound_ns,
                false => found.error_bound_ns.max(found.excess_ns),
            },
            label: self.class.label,
            calls: own.iter().map(|pair| pair.calls).sum(),
        })
    }
}

/// Returns the value that a quarter of the others does not exceed.
fn lower_quartile(mut values: Vec<f64>) -> Option<f64> {
    let place = values.len().checked_sub(1)? / 4;
    Some(*values.select_nth_unstable_by(place, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::small_job::{Act, CALL_NS, run_with_delays};
    use crate::{CallGraph, JobDiagnosis, JobVerdict, WaitAnalysis};

    const MS: i64 = 1_000_000;
    const STEPS: usize = 64;

    /// Work of about 20 ms, the same for the same place.
    fn noisy_work(rank: usize, step: usize) -> u64 {
        let mut state = (rank * 1_000 + step + 1) as u64;
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        20_000_000 + state % 1_000_000
    }

    /// Ranks around a ring, two on a node, which exchange messages with both neighbours in each step. Their work has noise.
    fn ring(ranks: usize, delay_ns: &dyn Fn(u32, u32) -> i64) -> JobCalls {
        let program = |rank: usize| {
            let of_step = |step: usize| {
                let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                let (right, left) = (right as i32, left as i32);
                let work = Act::Work(1, noisy_work(rank, step));
                [Act::Step, work, Act::Exchange(right, left, 1), Act::Exchange(left, right, 2)]
            };
            (0..STEPS).flat_map(of_step).collect::<Vec<Act>>()
        };
        let programs: Vec<Vec<Act>> = (0..ranks).map(program).collect();
        run_with_delays(&programs, 2, delay_ns)
    }

    fn diagnosis(job: &JobCalls) -> JobDiagnosis {
        let graph = CallGraph::new(job).unwrap();
        WaitAnalysis::new(&graph).diagnose()
    }

    fn length(job: &JobCalls) -> i64 {
        job.timelines.iter().map(|timeline| timeline.end_ns).max().unwrap()
    }

    /// Messages from node 2 take 4 ms longer.
    fn slow_node(from: u32, to: u32) -> i64 {
        if from == 2 && to != 2 { 4 * MS } else { 0 }
    }

    #[test]
    fn the_node_whose_messages_take_longer_is_named_with_its_cost() {
        let job = ring(8, &slow_node);
        let found = diagnosis(&job);
        let network = found.network.unwrap();
        assert_eq!(network.messages.subject, NetworkSubject::Node(2));
        assert!(found.findings.is_empty() && found.is_network_first(), "{found:#?}");
        assert!(matches!(found.verdict, JobVerdict::Balanced | JobVerdict::NoSingleCause));
        let truth = length(&job) - length(&ring(8, &|_, _| 0));
        assert!((network.gain.ns - truth).abs() * 5 < truth, "{} {truth}", network.gain.ns);
        assert!(network.messages.p < MAX_P && network.messages.ratio > 100.0, "{network:#?}");
        // Both directions on average.
        let excess = network.messages.excess_ns;
        assert!((1.5e6..=2.0e6).contains(&excess), "{excess}");
    }

    #[test]
    fn two_nodes_with_longer_messages_between_them_are_a_link() {
        let slow_link = |from: u32, to: u32| if (from.min(to), from.max(to)) == (1, 2) { 3 * MS } else { 0 };
        let found = diagnosis(&ring(8, &slow_link)).network.unwrap();
        assert_eq!(found.messages.subject, NetworkSubject::Link(1, 2));
    }

    #[test]
    fn equal_messages_name_no_node() {
        for delay_ns in [0, 3 * MS] {
            let all = |from: u32, to: u32| if from == to { 0 } else { delay_ns };
            let found = diagnosis(&ring(8, &all));
            assert_eq!((found.network, found.doubtful_network), (None, None));
        }
    }

    #[test]
    fn messages_of_two_nodes_cannot_be_compared() {
        let found = diagnosis(&ring(4, &|from, _| i64::from(from == 1) * 4 * MS));
        assert_eq!((found.network, found.doubtful_network), (None, None));
    }

    #[test]
    fn clocks_are_wrong_by_no_more_than_the_error_that_is_stated() {
        let right = ring(8, &slow_node);
        let expected = diagnosis(&right).network.unwrap();
        let far_off = [(2, 50 * MS), (2, -50 * MS), (0, 3 * MS), (1, -2 * MS)].map(|of| (of, 50 * MS));
        let hardly_off = [(2, MS / 20), (1, -MS / 20)].map(|of| (of, MS / 10));
        for ((node, offset_ns), bound_ns) in far_off.into_iter().chain(hardly_off) {
            let mut job = right.clone();
            for timeline in &mut job.timelines {
                timeline.error_bound_ns = Some(bound_ns as u64);
                let moved = if timeline.node == node { offset_ns } else { 0 };
                (timeline.start_ns, timeline.end_ns) = (timeline.start_ns + moved, timeline.end_ns + moved);
                timeline.calls.iter_mut().for_each(|call| call.enter_ns += moved);
            }
            let graph = CallGraph::new(&job).unwrap();
            // By clocks that are far off, the messages may not stand out.
            let Some(slow) = &graph.slow_network else {
                assert!(bound_ns > MS, "{node} {offset_ns}");
                continue;
            };
            let found = slow.messages;
            assert_eq!(found.subject, expected.messages.subject, "{node} {offset_ns}");
            let off = (found.excess_ns - expected.messages.excess_ns).abs();
            assert!(off <= found.clock_error_ns, "{found:#?}");
            assert!(found.exceeds_clock_error() || bound_ns > MS, "{found:#?}");
        }
    }

    #[test]
    fn messages_in_one_direction_need_clocks_that_show_it() {
        // Node 0 sends to 1, which sends to 2, and so on; all meet at the end of a step.
        let program = |rank: usize| {
            let of_step = |_| {
                let mut acts = vec![Act::Step, Act::Work(1, 5_000_000)];
                match rank {
                    1 | 3 | 5 => acts.push(Act::Send(rank as i32 + 1, 1)),
                    2 | 4 | 6 => acts.push(Act::Receive(rank as i32 - 1, 1)),
                    _ => {}
                }
                acts.push(Act::Collective(CollectiveWaits::ForAll));
                acts
            };
            (0..STEPS).flat_map(of_step).collect::<Vec<Act>>()
        };
        let programs: Vec<Vec<Act>> = (0..8).map(program).collect();
        let mut job = run_with_delays(&programs, 2, &|from, _| i64::from(from == 1) * 2 * MS);
        let found = diagnosis(&job).network.unwrap();
        assert_eq!(found.messages.subject, NetworkSubject::Link(1, 2));
        assert_eq!(found.messages.time_ns, (2 * MS + CALL_NS) as f64);
        job.timelines.iter_mut().for_each(|timeline| timeline.error_bound_ns = Some(MS as u64));
        let found = diagnosis(&job);
        assert_eq!(found.network, None);
        assert_eq!(found.doubtful_network.unwrap().subject, NetworkSubject::Link(1, 2));
    }

    #[test]
    fn a_slow_rank_is_no_slow_network() {
        let programs = |excess: u64| -> Vec<Vec<Act>> {
            let program = |rank: usize| {
                let of_step = |step: usize| {
                    let work = noisy_work(rank, step) + if rank == 5 { excess } else { 0 };
                    let work = Act::Work(1, work);
                    let (right, left) = ((rank as i32 + 1) % 8, (rank as i32 + 7) % 8);
                    [Act::Step, work, Act::Exchange(right, left, 1), Act::Exchange(left, right, 2)]
                };
                (0..STEPS).flat_map(of_step).collect::<Vec<Act>>()
            };
            (0..8).map(program).collect()
        };
        let mut job = run_with_delays(&programs(5_000_000), 2, &|_, _| 0);
        for bound in [Some(0), Some(50 * MS as u64)] {
            job.timelines.iter_mut().for_each(|timeline| timeline.error_bound_ns = bound);
            let found = diagnosis(&job);
            assert_eq!(found.network, None, "{found:#?}");
            assert_eq!(found.findings[0].subject.timelines(), [5]);
        }
    }
}
