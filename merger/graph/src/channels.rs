//! The channels of a job: the sends and receives that one communicator, source, destination and tag have in common.

use crate::job_calls::{
    ANY, CommunicatorMembers, JobCalls, MessageEnd, MessageRole, MessagesBefore, UNKNOWN,
};
use std::collections::HashMap;
use std::ops::Range;

/// One end of a message in the job: timeline and index of the end in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EndRef {
    pub(crate) timeline: u32,
    pub(crate) end: u32,
}

/// MessageChannel of an end that belongs to none, because its peer is no process (`MPI_PROC_NULL`) or not known.
const NO_CHANNEL: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ChannelKey {
    pub(crate) communicator: u32,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) tag: i32,
}

/// A channel with the ranges of its ends in [`JobChannels`].
#[derive(Clone, Debug)]
pub(crate) struct MessageChannel {
    pub(crate) key: ChannelKey,
    sends: Range<usize>,
    /// Receives and probes.
    receives: Range<usize>,
    /// Number of receives.
    pub(crate) receive_count: u32,
    /// Sends and receives before the part of the run that the calls are of.
    before: [u32; 2],
}

impl MessageChannel {
    /// Returns how many sends at the start belong to earlier receives, and how many receives to earlier sends.
    pub(crate) fn displaced(&self) -> [usize; 2] {
        let [sends, receives] = self.before;
        [receives.saturating_sub(sends) as usize, sends.saturating_sub(receives) as usize]
    }

    /// Returns whether only one of the two processes has ends of the channel, in the whole run.
    pub(crate) fn is_one_sided(&self) -> bool {
        self.send_count() + self.before[0] == 0 || self.receive_count + self.before[1] == 0
    }

    /// Returns the number of sends.
    pub(crate) fn send_count(&self) -> u32 {
        self.sends.len() as u32
    }
}

/// The ends of a process in order of time.
#[derive(Clone, Debug)]
enum ProcessEnds {
    /// All ends of a timeline, in its order.
    OfOne(u32),
    /// Ends on several timelines.
    OfSeveral(Vec<EndRef>),
}

/// The channels of a job.
pub(crate) struct JobChannels<'a> {
    job: &'a JobCalls,
    ends: Vec<ProcessEnds>,
    pub(crate) all: Vec<MessageChannel>,
    /// Sends of all channels, then their receives and probes: places among the ends of their process.
    places: Vec<u32>,
    /// Forms of receives that do not know their source or tag, with [`UNKNOWN`] or [`ANY`] in its place, and the
    /// number of each.
    pub(crate) unknown: Vec<(ChannelKey, u64)>,
    /// Number of sends to and of receives from processes that are not known.
    pub(crate) of_unknown_members: [u64; 2],
}

/// Communicator, peer and tag of an end as the call has them, and whether it sends.
type FormKey = (u32, i32, i32, bool);

fn form_key(end: &MessageEnd) -> FormKey {
    (end.communicator, end.peer, end.tag, end.role.is_send())
}

/// The channel of the ends of one form in a process: known, unknown, or none.
#[derive(Clone, Copy, Debug)]
enum FormMeaning {
    OfChannel(u32),
    /// An end that does not know its source or tag.
    Unknown(usize),
    /// The process of its peer is not known.
    OfUnknownMember,
    NoMessage,
}

/// A form that ends of a process have.
#[derive(Clone, Copy, Debug)]
struct EndForm {
    key: FormKey,
    meaning: FormMeaning,
    /// Form of the end that followed the last end of this form: programs repeat themselves.
    next: usize,
}

impl<'a> JobChannels<'a> {
    /// Finds the channel of each end.
    pub(crate) fn new(job: &'a JobCalls) -> JobChannels<'a> {
        let ends = ends_of_processes(job);
        let mut channels = JobChannels {
            job,
            ends,
            all: Vec::new(),
            places: Vec::new(),
            unknown: Vec::new(),
            of_unknown_members: [0; 2],
        };
        let mut finder = ChannelFinder {
            groups: GroupIndex { communicators: &job.communicators, sides: HashMap::new() },
            numbers: HashMap::new(),
            found: Vec::new(),
            unknown: Vec::new(),
            of_unknown_members: [0; 2],
            forms: Vec::new(),
            known_forms: HashMap::new(),
        };
        let channel_of = (0..job.processes).map(|process| finder.find(&channels, process)).collect();
        let before = finder.count_before(&job.messages_before);
        let ChannelFinder { found, unknown, of_unknown_members, .. } = finder;
        (channels.unknown, channels.of_unknown_members) = (unknown, of_unknown_members);
        channels.place(found, channel_of);
        for (channel, before) in channels.all.iter_mut().zip(before) {
            channel.before = before;
        }
        channels
    }

    /// Returns the end at a place among those of a process.
    pub(crate) fn end_at(&self, process: u32, place: u32) -> EndRef {
        match &self.ends[process as usize] {
            ProcessEnds::OfOne(timeline) => EndRef { timeline: *timeline, end: place },
            ProcessEnds::OfSeveral(ends) => ends[place as usize],
        }
    }

    /// Returns an end.
    pub(crate) fn end(&self, end: EndRef) -> &'a MessageEnd {
        &self.job.timelines[end.timeline as usize].message_ends[end.end as usize]
    }

    /// Returns the sends of a channel in order.
    pub(crate) fn sends(&self, channel: &MessageChannel) -> impl ExactSizeIterator<Item = EndRef> {
        let source = channel.key.source;
        self.places[channel.sends.clone()].iter().map(move |place| self.end_at(source, *place))
    }

    /// Returns the receives and probes of a channel in order.
    pub(crate) fn receives(&self, channel: &MessageChannel) -> impl ExactSizeIterator<Item = EndRef> {
        let destination = channel.key.destination;
        self.places[channel.receives.clone()].iter().map(move |place| self.end_at(destination, *place))
    }

    fn count_of(&self, process: u32) -> u32 {
        match &self.ends[process as usize] {
            ProcessEnds::OfOne(timeline) => {
                self.job.timelines.get(*timeline as usize).map_or(0, |found| found.message_ends.len() as u32)
            }
            ProcessEnds::OfSeveral(ends) => ends.len() as u32,
        }
    }

    /// Sorts the ends by channel. `found` has the key of each channel and the number of its sends, receives and
    /// probes.
    fn place(&mut self, found: Vec<(ChannelKey, [u32; 3])>, channel_of: Vec<Vec<u32>>) {
        let mut next = 0usize;
        let mut range = |count: u32| {
            next += count as usize;
            next - count as usize..next
        };
        let channels = found.into_iter().map(|(key, [sends, receives, probes])| MessageChannel {
            key,
            sends: range(sends),
            receives: range(receives + probes),
            receive_count: receives,
            before: [0; 2],
        });
        self.all = channels.collect();
        self.places = vec![0; next];
        let mut starts: Vec<(usize, usize)> =
            self.all.iter().map(|channel| (channel.sends.start, channel.receives.start)).collect();
        for (process, channels) in (0u32..).zip(channel_of) {
            for (place, channel) in (0u32..).zip(channels) {
                if channel == NO_CHANNEL {
                    continue;
                }
                let is_send = self.end(self.end_at(process, place)).role.is_send();
                let (send, receive) = &mut starts[channel as usize];
                let start = if is_send { send } else { receive };
                self.places[*start] = place;
                *start += 1;
            }
        }
    }
}

/// Returns the ends of each process.
fn ends_of_processes(job: &JobCalls) -> Vec<ProcessEnds> {
    let mut all = vec![ProcessEnds::OfOne(UNKNOWN); job.processes as usize];
    for (timeline, calls) in (0u32..).zip(&job.timelines).filter(|(_, calls)| !calls.message_ends.is_empty())
    {
        let ends_of = |timeline: u32| {
            let count = job.timelines[timeline as usize].message_ends.len() as u32;
            (0..count).map(move |end| EndRef { timeline, end })
        };
        let ends = &mut all[calls.process as usize];
        match ends {
            ProcessEnds::OfOne(UNKNOWN) => *ends = ProcessEnds::OfOne(timeline),
            ProcessEnds::OfOne(first) => {
                *ends = ProcessEnds::OfSeveral(ends_of(*first).chain(ends_of(timeline)).collect());
            }
            ProcessEnds::OfSeveral(ends) => ends.extend(ends_of(timeline)),
        }
    }
    for ends in &mut all {
        if let ProcessEnds::OfSeveral(ends) = ends {
            ends.sort_by_key(|end| {
                let timeline = &job.timelines[end.timeline as usize];
                timeline.calls[timeline.message_ends[end.end as usize].call as usize].enter_ns
            });
        }
    }
    all
}

struct ChannelFinder<'a> {
    groups: GroupIndex<'a>,
    numbers: HashMap<ChannelKey, u32>,
    /// Key of each channel, and the number of its sends, receives and probes.
    found: Vec<(ChannelKey, [u32; 3])>,
    unknown: Vec<(ChannelKey, u64)>,
    of_unknown_members: [u64; 2],
    /// The forms of the process whose ends are read.
    forms: Vec<EndForm>,
    known_forms: HashMap<FormKey, usize>,
}

impl ChannelFinder<'_> {
    /// Finds the channel of each end of a process.
    fn find(&mut self, channels: &JobChannels<'_>, process: u32) -> Vec<u32> {
        self.forms.clear();
        self.known_forms.clear();
        let mut last: Option<usize> = None;
        let channel_of = |place: u32| {
            let end = channels.end(channels.end_at(process, place));
            let key = form_key(end);
            let expected = last.map(|last| self.forms[last].next);
            let form = match expected.filter(|form| self.forms[*form].key == key) {
                Some(form) => form,
                None => self.form_of(process, key),
            };
            if let Some(last) = last {
                self.forms[last].next = form;
            }
            last = Some(form);
            self.count(self.forms[form].meaning, end.role)
        };
        (0..channels.count_of(process)).map(channel_of).collect()
    }

    /// Returns the numbers of sends and receives of each channel in these messages.
    fn count_before(&mut self, messages: &[MessagesBefore]) -> Vec<[u32; 2]> {
        let mut before = Vec::new();
        for found in messages {
            match self.meaning_of(found.process, (found.communicator, found.peer, found.tag, found.is_send)) {
                FormMeaning::OfChannel(channel) => {
                    before.resize(self.found.len().max(before.len()), [0; 2]);
                    let count: &mut u32 = &mut before[channel as usize][usize::from(!found.is_send)];
                    *count = count.saturating_add(found.count);
                }
                // They may be of any channel that fits.
                FormMeaning::Unknown(form) => self.unknown[form].1 += u64::from(found.count),
                FormMeaning::OfUnknownMember | FormMeaning::NoMessage => {}
            }
        }
        before.resize(self.found.len(), [0; 2]);
        before
    }

    fn form_of(&mut self, process: u32, key: FormKey) -> usize {
        if let Some(form) = self.known_forms.get(&key) {
            return *form;
        }
        let meaning = self.meaning_of(process, key);
        self.known_forms.insert(key, self.forms.len());
        self.forms.push(EndForm { key, meaning, next: 0 });
        self.forms.len() - 1
    }

    fn meaning_of(&mut self, process: u32, (communicator, peer, tag, is_send): FormKey) -> FormMeaning {
        let peer = match peer {
            ANY => UNKNOWN,
            peer => match self.groups.peer_of(communicator, process, peer) {
                MessagePeer::Process(peer) => peer,
                MessagePeer::Unknown => return FormMeaning::OfUnknownMember,
                MessagePeer::Nobody => return FormMeaning::NoMessage,
            },
        };
        let (source, destination) = if is_send { (process, peer) } else { (peer, process) };
        let key = ChannelKey { communicator, source, destination, tag };
        if peer == UNKNOWN || tag == ANY {
            self.unknown.push((key, 0));
            return FormMeaning::Unknown(self.unknown.len() - 1);
        }
        let next = self.found.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.found.push((key, [0; 3]));
        }
        FormMeaning::OfChannel(number)
    }

    /// Counts an end and returns its channel.
    fn count(&mut self, meaning: FormMeaning, role: MessageRole) -> u32 {
        let kind = match role {
            MessageRole::Receive => 1,
            MessageRole::Probe => 2,
            _ => 0,
        };
        match meaning {
            FormMeaning::OfChannel(channel) => {
                self.found[channel as usize].1[kind] += 1;
                channel
            }
            FormMeaning::Unknown(form) => {
                self.unknown[form].1 += u64::from(role == MessageRole::Receive);
                NO_CHANNEL
            }
            FormMeaning::OfUnknownMember => {
                // A probe leaves its message.
                if let Some(count) = self.of_unknown_members.get_mut(kind) {
                    *count += 1;
                }
                NO_CHANNEL
            }
            FormMeaning::NoMessage => NO_CHANNEL,
        }
    }
}

/// The other process of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessagePeer {
    Process(u32),
    /// The members of the communicator are not known, or this rank is none of them.
    Unknown,
    /// `MPI_PROC_NULL`.
    Nobody,
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

    /// Returns which process a peer of `process` is.
    pub(crate) fn peer_of(&mut self, communicator: u32, process: u32, peer: i32) -> MessagePeer {
        let Ok(peer) = usize::try_from(peer) else { return MessagePeer::Nobody };
        let group = self.group_of_peers(communicator, process);
        let found = group.and_then(|group| group.get(peer)).copied();
        found.filter(|process| *process != UNKNOWN).map_or(MessagePeer::Unknown, MessagePeer::Process)
    }

    /// Returns the group that contains the peers of a process.
    fn group_of_peers(&mut self, communicator: u32, process: u32) -> Option<&'a [u32]> {
        match self.communicators[communicator as usize].groups.as_slice() {
            [group] => Some(group),
            [first, second] => {
                let side = || [first, second].iter().position(|group| group.contains(&process));
                match (*self.sides.entry((communicator, process)).or_insert_with(side))? {
                    0 => Some(second),
                    _ => Some(first),
                }
            }
            _ => None,
        }
    }
}
