//! Matches sends with receives.
//!
//! MPI does not let two messages of one process to another overtake each other if the same receive fits both. So
//! the sends and receives of a *channel* (communicator, source, destination, tag) match in their order. A receive
//! of which the source or tag is not known may belong to several channels: such a channel is matched only if it has as
//! many sends as receives. Where calls are missing, `gap_matching.rs` matches the ends that no gap displaces.

use crate::channels::{ChannelKey, EndRef, JobChannels, MessageChannel};
use crate::gap_matching::{ChannelSide, GapMatching, SharedCollectives};
use crate::job_calls::{ANY, CallGap, JobCalls, MessageRole, UNKNOWN};
use std::collections::HashMap;

/// No end.
const NO_END: EndRef = EndRef { timeline: UNKNOWN, end: UNKNOWN };

/// Numbers of messages by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Messages whose send and receive match.
    pub matched: u64,
    /// Sends without a receive, also those to processes that are not known.
    pub unmatched_sends: u64,
    /// Receives without a send, also those from processes that are not known.
    pub unmatched_receives: u64,
    /// Sends and receives that could match several, because a source or tag is not known or calls are missing.
    pub ambiguous: u64,
    /// Receives that do not know their source or tag.
    pub unknown_sources: u64,
    /// Messages that are larger than the buffer of their receive, or received before they were sent.
    pub contradicted: u64,
}

/// The messages of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct MatchedMessages {
    /// Other end of each message end, by timeline.
    partners: Vec<Vec<EndRef>>,
    /// Numbers.
    pub(crate) counts: MessageCounts,
}

impl MatchedMessages {
    /// Returns the other end of a message. For a probe it is the send of the message that it saw.
    pub(crate) fn partner(&self, timeline: usize, end: usize) -> Option<EndRef> {
        Some(self.partners[timeline][end]).filter(|partner| *partner != NO_END)
    }
}

/// Which calls of a process are missing.
#[derive(Clone, Copy, Debug)]
enum MissingEnds<'a> {
    /// Calls at these places, perhaps.
    Located(&'a [CallGap]),
    /// Calls at unknown places.
    Anywhere,
}

/// Matches the messages of a job.
pub(crate) fn match_messages(job: &JobCalls) -> MatchedMessages {
    let channels = JobChannels::new(job);
    let mut matching = MessageMatching {
        job,
        partners: job.timelines.iter().map(|timeline| vec![NO_END; timeline.message_ends.len()]).collect(),
        counts: MessageCounts::default(),
    };
    let [sends, receives] = channels.of_unknown_members;
    (matching.counts.unmatched_sends, matching.counts.unmatched_receives) = (sends, receives);
    matching.counts.unknown_sources = channels.unknown.iter().map(|(_, count)| count).sum();
    let missing = missing_ends(job);
    let doubtful = DoubtfulChannels::new(&channels);
    let mut with_gaps: Vec<(&MessageChannel, [&[CallGap]; 2])> = Vec::new();
    for channel in &channels.all {
        let key = channel.key;
        // In a part of the run, the last messages may be received after it.
        let is_equal = channel.send_count() == channel.receive_count && !job.is_part;
        let is_doubtful = doubtful.contains(&key);
        let gaps = match [key.source, key.destination].map(|process| missing[process as usize]) {
            [MissingEnds::Located(source), MissingEnds::Located(destination)] => {
                Some([source, destination].map(|gaps| of_communicator(gaps, key.communicator)))
            }
            _ => None,
        };
        match gaps {
            Some([[], []]) if is_equal || !is_doubtful => matching.match_in_order(&channels, channel),
            Some([[], _] | [_, []]) if is_equal && !is_doubtful => {
                matching.match_in_order(&channels, channel)
            }
            // The ends of a part are no ends of the run, from which those after a gap could be counted.
            Some(gaps) if !is_doubtful && !job.is_part => with_gaps.push((channel, gaps)),
            None if is_equal && !is_doubtful => matching.match_in_order(&channels, channel),
            _ => matching.leave(channel),
        }
    }
    let mut shared = SharedCollectives::new(job);
    for (channel, gaps) in with_gaps {
        matching.match_with_gaps(&channels, channel, gaps, &mut shared);
    }
    MatchedMessages { partners: matching.partners, counts: matching.counts }
}

/// Returns for each process which of its calls are missing.
fn missing_ends(job: &JobCalls) -> Vec<MissingEnds<'_>> {
    let mut missing = vec![MissingEnds::Located(&[]); job.processes as usize];
    let mut timelines = vec![0u32; job.processes as usize];
    for timeline in job.timelines.iter().filter(|timeline| !timeline.is_stream) {
        timelines[timeline.process as usize] += 1;
    }
    for timeline in job.timelines.iter().filter(|timeline| timeline.lacks_calls) {
        missing[timeline.process as usize] = match &timeline.gaps {
            Some(gaps) if timelines[timeline.process as usize] == 1 => MissingEnds::Located(gaps),
            _ => MissingEnds::Anywhere,
        };
    }
    missing
}

/// Returns the gaps in the calls of a communicator.
fn of_communicator(gaps: &[CallGap], communicator: u32) -> &[CallGap] {
    let from = gaps.partition_point(|gap| gap.communicator < communicator);
    let to = gaps.partition_point(|gap| gap.communicator <= communicator);
    &gaps[from..to]
}

/// Channels to which receives may belong that do not know their source or tag.
struct DoubtfulChannels(HashMap<(u32, u32), Vec<(u32, i32)>>);

impl DoubtfulChannels {
    fn new(channels: &JobChannels<'_>) -> DoubtfulChannels {
        let mut forms: HashMap<(u32, u32), Vec<(u32, i32)>> = HashMap::new();
        for (key, _) in channels.unknown.iter().filter(|(_, count)| *count > 0) {
            let of = forms.entry((key.communicator, key.destination)).or_default();
            if !of.contains(&(key.source, key.tag)) {
                of.push((key.source, key.tag));
            }
        }
        DoubtfulChannels(forms)
    }

    fn contains(&self, key: &ChannelKey) -> bool {
        let fits = |(source, tag): &(u32, i32)| {
            (*source == UNKNOWN || *source == key.source) && (*tag == ANY || *tag == key.tag)
        };
        let forms = self.0.get(&(key.communicator, key.destination));
        forms.is_some_and(|forms| forms.iter().any(fits))
    }
}

struct MessageMatching<'a> {
    job: &'a JobCalls,
    partners: Vec<Vec<EndRef>>,
    counts: MessageCounts,
}

impl MessageMatching<'_> {
    /// Matches the sends and receives of a channel in their order.
    fn match_in_order(&mut self, channels: &JobChannels<'_>, channel: &MessageChannel) {
        let [first_send, mut earlier] = channel.displaced();
        let mut sends = channels.sends(channel).skip(first_send).peekable();
        let may_be_outside = self.job.is_part && !channel.is_one_sided();
        for end in channels.receives(channel) {
            let is_probe = channels.end(end).role == MessageRole::Probe;
            if earlier > 0 {
                earlier -= usize::from(!is_probe);
                continue;
            }
            match (sends.peek().copied(), is_probe) {
                (Some(send), true) => self.set_partner(end, send),
                (Some(send), false) => {
                    sends.next();
                    self.pair(send, end);
                }
                (None, true) => {}
                (None, false) => self.counts.unmatched_receives += u64::from(!may_be_outside),
            }
        }
        self.counts.unmatched_sends += if may_be_outside { 0 } else { sends.count() as u64 };
    }

    /// Matches the ends of a channel that gaps in the calls of its processes do not displace.
    fn match_with_gaps(
        &mut self,
        channels: &JobChannels<'_>,
        channel: &MessageChannel,
        [source, destination]: [&[CallGap]; 2],
        shared: &mut SharedCollectives<'_>,
    ) {
        let sends: Vec<EndRef> = channels.sends(channel).collect();
        // A probe does not show which of several messages it saw.
        let is_receive = |end: &EndRef| channels.end(*end).role == MessageRole::Receive;
        let receives: Vec<EndRef> = channels.receives(channel).filter(is_receive).collect();
        let call_of = |end: &EndRef| channels.end(*end).call;
        let sides = [(&sends, source), (&receives, destination)];
        let [from, to] = sides.map(|(ends, gaps)| ChannelSide::new(ends.iter().map(call_of).collect(), gaps));
        let pairs =
            GapMatching::new(from, to).pairs(|| shared.between(channel.key.source, channel.key.destination));
        for (send, receive) in &pairs {
            self.pair(sends[*send], receives[*receive]);
        }
        self.counts.ambiguous += (sends.len() + receives.len() - 2 * pairs.len()) as u64;
    }

    /// Counts the ends of a channel as ambiguous.
    fn leave(&mut self, channel: &MessageChannel) {
        self.counts.ambiguous += u64::from(channel.send_count()) + u64::from(channel.receive_count);
    }

    /// Notes that a send and a receive are one message, unless they contradict that.
    fn pair(&mut self, send: EndRef, receive: EndRef) {
        if contradicts(self.job, send, receive) {
            self.counts.contradicted += 1;
            return;
        }
        self.set_partner(receive, send);
        self.set_partner(send, receive);
        self.counts.matched += 1;
    }

    fn set_partner(&mut self, end: EndRef, partner: EndRef) {
        self.partners[end.timeline as usize][end.end as usize] = partner;
    }
}

/// Returns whether a send and a receive cannot be one message: the message does not fit into the buffer, or its
/// receive ended before its send began, by more than the errors of their clocks.
fn contradicts(job: &JobCalls, send: EndRef, receive: EndRef) -> bool {
    let (from, to) = (&job.timelines[send.timeline as usize], &job.timelines[receive.timeline as usize]);
    let (sent, received) = (&from.message_ends[send.end as usize], &to.message_ends[receive.end as usize]);
    let (sent_ns, left_ns) =
        (from.calls[sent.call as usize].enter_ns, to.calls[received.call as usize].exit_ns());
    // Most messages are in order without an error of clocks.
    let is_too_early = received.is_blocking
        && left_ns < sent_ns
        && from.error_bound_at(sent_ns).zip(to.error_bound_at(left_ns)).is_some_and(
            |(of_send, of_receive)| {
                left_ns.saturating_add_unsigned(of_send.saturating_add(of_receive)) < sent_ns
            },
        );
    sent.assumed_bytes() > received.assumed_bytes() || is_too_early
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_calls::{Call, CallTimeline, CommunicatorMembers, MessageEnd};

    fn end(call: u32, role: MessageRole, peer: i32, tag: i32) -> MessageEnd {
        MessageEnd { call, communicator: 0, peer, tag, bytes: 4, role, is_blocking: true }
    }

    /// A job in which each process has these ends, one in each call.
    fn job(ends: &[&[(MessageRole, i32, i32)]]) -> JobCalls {
        let timeline = |(process, ends): (u32, &&[(MessageRole, i32, i32)])| CallTimeline {
            process,
            error_bound_ns: Some(0),
            calls: (0..ends.len() as i64)
                .map(|call| Call { enter_ns: call * 10, duration_ns: 10, label: 0 })
                .collect(),
            first_work: vec![0; ends.len() + 2],
            message_ends: (0u32..)
                .zip(*ends)
                .map(|(call, (role, peer, tag))| end(call, *role, *peer, *tag))
                .collect(),
            ..CallTimeline::default()
        };
        let processes = ends.len() as u32;
        JobCalls {
            timelines: (0u32..).zip(ends).map(timeline).collect(),
            communicators: vec![CommunicatorMembers { groups: vec![(0..processes).collect()] }],
            processes,
            labels: 1,
            ..JobCalls::default()
        }
    }

    const SEND: MessageRole = MessageRole::Send;
    const RECEIVE: MessageRole = MessageRole::Receive;

    fn partners(job: &JobCalls, timeline: usize) -> Vec<Option<(u32, u32)>> {
        assert_eq!(job.check(), Ok(()));
        let matched = match_messages(job);
        let ends = 0..job.timelines[timeline].message_ends.len();
        ends.map(|end| matched.partner(timeline, end).map(|found| (found.timeline, found.end))).collect()
    }

    #[test]
    fn messages_of_a_channel_keep_their_order_and_tags_do_not() {
        let job = job(&[
            &[(SEND, 1, 5), (SEND, 1, 6), (SEND, 1, 5)],
            &[(RECEIVE, 0, 6), (RECEIVE, 0, 5), (RECEIVE, 0, 5)],
        ]);
        assert_eq!(partners(&job, 1), [Some((0, 1)), Some((0, 0)), Some((0, 2))]);
        assert_eq!(partners(&job, 0), [Some((1, 1)), Some((1, 0)), Some((1, 2))]);
    }

    #[test]
    fn a_probe_sees_the_message_and_leaves_it() {
        let job = job(&[&[(SEND, 1, 5)], &[(MessageRole::Probe, 0, 5), (RECEIVE, 0, 5)]]);
        assert_eq!(partners(&job, 1), [Some((0, 0)), Some((0, 0))]);
        assert_eq!(match_messages(&job).counts, MessageCounts { matched: 1, ..MessageCounts::default() });
    }

    #[test]
    fn no_process_is_no_partner() {
        let job = job(&[&[(SEND, -1, 5)], &[(RECEIVE, -2, 5)]]);
        assert_eq!(partners(&job, 1), [None]);
        assert_eq!(match_messages(&job).counts, MessageCounts::default());
    }

    #[test]
    fn messages_of_processes_that_are_not_known_do_not_match() {
        let ends =
            [(SEND, 1, 5), (RECEIVE, 1, 5), (RECEIVE, 7, 5), (MessageRole::Probe, 1, 5), (SEND, -1, 5)];
        let mut job = job(&[&ends, &[]]);
        for groups in [vec![], vec![vec![0, UNKNOWN]], vec![vec![1], vec![1]]] {
            job.communicators[0].groups = groups;
            assert_eq!(partners(&job, 0), [None; 5]);
            let counts = match_messages(&job).counts;
            let expected = MessageCounts { unmatched_sends: 1, unmatched_receives: 2, ..counts };
            assert_eq!((counts, counts.matched), (expected, 0));
        }
    }

    #[test]
    fn an_unknown_source_makes_only_unequal_channels_ambiguous() {
        // Rank 2 receives from any rank once. Rank 0 sent as many messages as rank 2 received from it, rank 1 more.
        let job = job(&[
            &[(SEND, 2, 5)],
            &[(SEND, 2, 5), (SEND, 2, 5)],
            &[(RECEIVE, ANY, 5), (RECEIVE, 0, 5), (RECEIVE, 1, 5)],
        ]);
        assert_eq!(partners(&job, 2), [None, Some((0, 0)), None]);
        let counts = match_messages(&job).counts;
        assert_eq!((counts.matched, counts.ambiguous, counts.unknown_sources), (1, 3, 1));
    }

    #[test]
    fn missing_calls_make_only_unequal_channels_ambiguous() {
        let mut job = job(&[&[(SEND, 1, 5), (SEND, 1, 6)], &[(RECEIVE, 0, 5)]]);
        assert_eq!(match_messages(&job).counts.unmatched_sends, 1);
        job.timelines[1].lacks_calls = true;
        let counts = match_messages(&job).counts;
        assert_eq!((counts.matched, counts.ambiguous, counts.unmatched_sends), (1, 1, 0));
    }

    #[test]
    fn a_message_that_does_not_fit_or_came_before_it_was_sent_is_none() {
        let mut large = job(&[&[(SEND, 1, 5)], &[(RECEIVE, 0, 5)]]);
        large.timelines[0].message_ends[0].bytes = 5;
        assert_eq!(partners(&large, 1), [None]);
        let mut early = job(&[&[(SEND, 1, 5)], &[(RECEIVE, 0, 5)]]);
        early.timelines[0].calls[0].enter_ns = 11;
        assert_eq!(match_messages(&early).counts.contradicted, 1);
        early.timelines[1].error_bound_ns = Some(1);
        assert_eq!(match_messages(&early).counts.matched, 1);
    }

    #[test]
    fn a_peer_in_an_intercommunicator_is_one_of_the_other_group() {
        let mut job = job(&[&[(SEND, 0, 5)], &[(SEND, 1, 5)], &[(RECEIVE, 0, 5)], &[(RECEIVE, 1, 5)]]);
        job.communicators[0].groups = vec![vec![0, 1], vec![2, 3]];
        assert_eq!((partners(&job, 2), partners(&job, 3)), (vec![Some((0, 0))], vec![Some((1, 0))]));
    }
}
