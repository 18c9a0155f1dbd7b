//! Matches sends with receives.
//!
//! MPI does not let two messages of one process to another overtake each other if the same receive fits both. So
//! the sends and receives of a *channel* (communicator, source, destination, tag) match in their order. A receive
//! of which the source or tag is not known may belong to several channels, and a process of which calls are missing
//! may lack ends. A channel with such an end is matched only if it has as many sends as receives.

use crate::job_calls::{ANY, CommunicatorMembers, JobCalls, MessageRole, UNKNOWN};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// One end of a message in the job: timeline and index of the end in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EndRef {
    pub(crate) timeline: u32,
    pub(crate) end: u32,
}

/// No end.
const NO_END: EndRef = EndRef { timeline: UNKNOWN, end: UNKNOWN };
/// Channel of an end that belongs to none, because its peer is no process (`MPI_PROC_NULL`) or not known.
const NO_CHANNEL: u32 = u32::MAX;

/// Numbers of messages by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Messages whose send and receive match.
    pub matched: u64,
    /// Sends without a receive.
    pub unmatched_sends: u64,
    /// Receives without a send.
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

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ChannelKey {
    communicator: u32,
    source: u32,
    destination: u32,
    tag: i32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// Sends, then their place in the list of all sends.
    sends: u32,
    receives: u32,
    first_send: u32,
    taken: u32,
    /// Whether a receive that does not know its source may belong to this channel, or one of the two processes
    /// lacks calls.
    is_doubtful: bool,
}

impl Channel {
    fn is_ambiguous(&self) -> bool {
        self.is_doubtful && self.sends != self.receives
    }
}

/// Matches the messages of a job.
pub(crate) fn match_messages(job: &JobCalls) -> MatchedMessages {
    let mut matching = Matching::new(job);
    matching.find_channels();
    matching.mark_doubtful_channels();
    let sends = matching.sends_by_channel();
    matching.take_receives(&sends)
}

struct Matching<'a> {
    job: &'a JobCalls,
    /// Ends of each process in order of time, where they are on several timelines.
    ends_of_process: Vec<Vec<EndRef>>,
    groups: GroupIndex<'a>,
    channels: Vec<Channel>,
    keys: Vec<ChannelKey>,
    /// Channel of each end, by timeline.
    channel_of: Vec<Vec<u32>>,
    /// Receives that do not know their source or tag: communicator, source and tag or [`ANY`], destination.
    unknown: Vec<ChannelKey>,
    counts: MessageCounts,
}

impl<'a> Matching<'a> {
    fn new(job: &'a JobCalls) -> Matching<'a> {
        let mut ends_of_process: Vec<Vec<EndRef>> = vec![Vec::new(); job.processes as usize];
        for (timeline, calls) in (0u32..).zip(&job.timelines) {
            let ends = (0..calls.message_ends.len() as u32).map(|end| EndRef { timeline, end });
            ends_of_process[calls.process as usize].extend(ends);
        }
        for ends in &mut ends_of_process {
            let is_of_one = ends.first().map(|end| end.timeline) == ends.last().map(|end| end.timeline);
            if !is_of_one {
                ends.sort_by_key(|end| {
                    let timeline = &job.timelines[end.timeline as usize];
                    timeline.calls[timeline.message_ends[end.end as usize].call as usize].enter_ns
                });
            }
        }
        Matching {
            job,
            ends_of_process,
            groups: GroupIndex::new(&job.communicators),
            channels: Vec::new(),
            keys: Vec::new(),
            channel_of: job.timelines.iter().map(|t| vec![NO_CHANNEL; t.message_ends.len()]).collect(),
            unknown: Vec::new(),
            counts: MessageCounts::default(),
        }
    }

    /// Finds the channel of each end, and counts the ends of each channel.
    fn find_channels(&mut self) {
        let mut numbers: HashMap<ChannelKey, u32> = HashMap::new();
        for process in 0..self.job.processes {
            for end in &self.ends_of_process[process as usize] {
                let message = &self.job.timelines[end.timeline as usize].message_ends[end.end as usize];
                let peer = match message.peer {
                    ANY => UNKNOWN,
                    peer => match self.groups.process_of(message.communicator, process, peer) {
                        Some(peer) => peer,
                        None => continue,
                    },
                };
                let (source, destination) =
                    if message.role.is_send() { (process, peer) } else { (peer, process) };
                let key =
                    ChannelKey { communicator: message.communicator, source, destination, tag: message.tag };
                if peer == UNKNOWN || message.tag == ANY {
                    if message.role == MessageRole::Receive {
                        self.unknown.push(key);
                    }
                    continue;
                }
                let number = match numbers.entry(key) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        self.keys.push(key);
                        self.channels.push(Channel::default());
                        *new.insert(self.channels.len() as u32 - 1)
                    }
                };
                let channel = &mut self.channels[number as usize];
                match message.role {
                    MessageRole::Receive => channel.receives += 1,
                    MessageRole::Probe => {}
                    _ => channel.sends += 1,
                }
                self.channel_of[end.timeline as usize][end.end as usize] = number;
            }
        }
    }

    fn mark_doubtful_channels(&mut self) {
        self.counts.unknown_sources = self.unknown.len() as u64;
        let mut lacks_calls = vec![false; self.job.processes as usize];
        for timeline in &self.job.timelines {
            lacks_calls[timeline.process as usize] |= timeline.lacks_calls;
        }
        let mut unknown: HashMap<(u32, u32), Vec<(u32, i32)>> = HashMap::new();
        for key in &self.unknown {
            let forms = unknown.entry((key.communicator, key.destination)).or_default();
            if !forms.contains(&(key.source, key.tag)) {
                forms.push((key.source, key.tag));
            }
        }
        for (channel, key) in self.channels.iter_mut().zip(&self.keys) {
            let fits = |(source, tag): &(u32, i32)| {
                (*source == UNKNOWN || *source == key.source) && (*tag == ANY || *tag == key.tag)
            };
            let forms = unknown.get(&(key.communicator, key.destination));
            channel.is_doubtful = lacks_calls[key.source as usize]
                || lacks_calls[key.destination as usize]
                || forms.is_some_and(|forms| forms.iter().any(fits));
        }
    }

    /// Returns the sends of all channels, in order in each, and notes where each channel begins.
    fn sends_by_channel(&mut self) -> Vec<EndRef> {
        let mut first = 0;
        for channel in &mut self.channels {
            channel.first_send = first;
            first += channel.sends;
        }
        let mut sends = vec![NO_END; first as usize];
        let mut next: Vec<u32> = self.channels.iter().map(|channel| channel.first_send).collect();
        for ends in &self.ends_of_process {
            for end in ends {
                let channel = self.channel_of[end.timeline as usize][end.end as usize];
                let message = &self.job.timelines[end.timeline as usize].message_ends[end.end as usize];
                if channel != NO_CHANNEL && message.role.is_send() {
                    sends[next[channel as usize] as usize] = *end;
                    next[channel as usize] += 1;
                }
            }
        }
        sends
    }

    fn take_receives(mut self, sends: &[EndRef]) -> MatchedMessages {
        let mut partners: Vec<Vec<EndRef>> =
            self.job.timelines.iter().map(|timeline| vec![NO_END; timeline.message_ends.len()]).collect();
        for ends in &self.ends_of_process {
            for end in ends {
                let number = self.channel_of[end.timeline as usize][end.end as usize];
                let message = &self.job.timelines[end.timeline as usize].message_ends[end.end as usize];
                if number == NO_CHANNEL || message.role.is_send() {
                    continue;
                }
                let channel = &mut self.channels[number as usize];
                let is_probe = message.role == MessageRole::Probe;
                if channel.is_ambiguous() {
                    self.counts.ambiguous += u64::from(!is_probe);
                    continue;
                }
                if channel.taken == channel.sends {
                    self.counts.unmatched_receives += u64::from(!is_probe);
                    continue;
                }
                let send = sends[(channel.first_send + channel.taken) as usize];
                if is_probe {
                    partners[end.timeline as usize][end.end as usize] = send;
                    continue;
                }
                channel.taken += 1;
                if contradicts(self.job, send, *end) {
                    self.counts.contradicted += 1;
                    continue;
                }
                partners[end.timeline as usize][end.end as usize] = send;
                partners[send.timeline as usize][send.end as usize] = *end;
                self.counts.matched += 1;
            }
        }
        for channel in &self.channels {
            let left = u64::from(channel.sends - channel.taken);
            match channel.is_ambiguous() {
                true => self.counts.ambiguous += left,
                false => self.counts.unmatched_sends += left,
            }
        }
        MatchedMessages { partners, counts: self.counts }
    }
}

/// Returns whether a send and a receive cannot be one message: the message does not fit into the buffer, or its
/// receive ended before its send began, by more than the errors of their clocks.
fn contradicts(job: &JobCalls, send: EndRef, receive: EndRef) -> bool {
    let (from, to) = (&job.timelines[send.timeline as usize], &job.timelines[receive.timeline as usize]);
    let (sent, received) = (&from.message_ends[send.end as usize], &to.message_ends[receive.end as usize]);
    let bound = from.error_bound_ns.zip(to.error_bound_ns).map(|(from, to)| from.saturating_add(to));
    let is_too_early = received.is_blocking
        && bound.is_some_and(|bound| {
            let left = to.calls[received.call as usize].exit_ns().saturating_add_unsigned(bound);
            left < from.calls[sent.call as usize].enter_ns
        });
    sent.bytes > received.bytes || is_too_early
}

/// Finds the process of a rank in a communicator.
pub(crate) struct GroupIndex<'a> {
    communicators: &'a [CommunicatorMembers],
    /// Group of a process in an intercommunicator.
    sides: HashMap<(u32, u32), Option<usize>>,
}

impl<'a> GroupIndex<'a> {
    pub(crate) fn new(communicators: &'a [CommunicatorMembers]) -> GroupIndex<'a> {
        GroupIndex { communicators, sides: HashMap::new() }
    }

    /// Returns the process that a peer of `process` is. `None` if it is no process, as `MPI_PROC_NULL`, or is not
    /// known.
    pub(crate) fn process_of(&mut self, communicator: u32, process: u32, peer: i32) -> Option<u32> {
        let groups = &self.communicators[communicator as usize].groups;
        let group = match groups.as_slice() {
            [group] => group,
            [first, second] => {
                let side = || [first, second].iter().position(|group| group.contains(&process));
                match *self.sides.entry((communicator, process)).or_insert_with(side) {
                    Some(0) => second,
                    Some(_) => first,
                    None => return None,
                }
            }
            _ => return None,
        };
        group.get(usize::try_from(peer).ok()?).copied().filter(|process| *process != UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_calls::{Call, CallTimeline, MessageEnd};

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
        let job = job(&[&[(SEND, -1, 5)], &[(RECEIVE, -2, 5), (RECEIVE, 7, 5)]]);
        assert_eq!(partners(&job, 1), [None, None]);
        assert_eq!(match_messages(&job).counts, MessageCounts::default());
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
