//! Calls that had not returned when the recording ended, and the processes that they wait for.

use crate::job_calls::{
    ANY, BegunOperation, CallTimeline, CollectiveEntry, CollectiveWaits, JobCalls, MessageEnd, MessageRole,
    UNKNOWN,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A call that had not returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenCall {
    /// Its timeline.
    pub timeline: u32,
    /// Index of the call, the last of its timeline.
    pub call: u32,
    /// Time from when the thread entered it to the end of the recording on its node, ns.
    pub open_ns: u64,
    /// The collectives that it has to complete, with their waits.
    pub collectives: Vec<OpenCollective>,
    /// The ends of messages that it has to complete.
    pub messages: Vec<OpenMessage>,
}

/// A collective that is not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenCollective {
    /// Index of the communicator.
    pub communicator: u32,
    /// Number of the collective on it.
    pub number: u32,
    /// Label of the function by which the process entered it.
    pub label: u32,
    /// Members that did not enter it and for which the call waits.
    pub missing: Vec<u32>,
    /// Members that may have entered it, for which the call would wait otherwise: calls of theirs are not recorded.
    pub unknown: Vec<u32>,
    /// Members that entered another function or root by this number.
    pub differing: Vec<u32>,
}

/// An end of a message that is not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMessage {
    /// The end.
    pub end: MessageEnd,
    /// Process of the other end, if it is known.
    pub process: Option<u32>,
    /// Whether that process has begun no other end that fits; `None` if that is not known.
    pub lacks_other_end: Option<bool>,
}

impl OpenCall {
    /// Returns the processes for which the call certainly waits, ascending.
    pub fn waits_for(&self) -> BTreeSet<u32> {
        let missing =
            self.collectives.iter().flat_map(|one| one.missing.iter().chain(&one.differing).copied());
        let silent = self.messages.iter().filter(|one| one.lacks_other_end == Some(true));
        missing.chain(silent.filter_map(|one| one.process)).collect()
    }
}

/// Sends or receives of a process: communicator, rank of the other end, tag.
type EndKey = (u32, i32, i32);

/// The message ends of a process.
#[derive(Debug, Default)]
struct ProcessEnds {
    sends: HashMap<EndKey, u32>,
    receives: HashMap<EndKey, u32>,
    /// Communicators with receives from any source or with any tag, of which it is not known what they receive.
    unknown: HashSet<u32>,
    /// Whether calls of the process are not recorded.
    lacks_calls: bool,
    /// How it entered each collective, by communicator and number.
    entered: HashMap<(u32, u32), EntryForm>,
}

impl CollectiveEntry {
    /// Returns the class of a number of bytes: 1 for none, 2 for one, and one more for each doubling;
    /// 0 for [`MessageEnd::UNKNOWN_BYTES`].
    pub fn size_class(bytes: u32) -> u8 {
        match bytes {
            MessageEnd::UNKNOWN_BYTES => 0,
            bytes => bytes.checked_ilog2().map_or(1, |log| log as u8 + 2),
        }
    }
}

/// Arguments that all members of a collective must agree on.
#[derive(Clone, Copy, Debug)]
struct EntryForm {
    function: u32,
    root: i32,
    /// Class of the bytes; 0 if it is not recorded, or each member has its own.
    size_class: u8,
}

impl EntryForm {
    fn of(entry: &CollectiveEntry) -> EntryForm {
        let size_class = if entry.is_size_shared { entry.size_class } else { 0 };
        EntryForm { function: entry.function, root: entry.root, size_class }
    }

    fn differs(self, other: EntryForm) -> bool {
        let are_sizes_known = self.size_class > 0 && other.size_class > 0;
        (self.function, self.root) != (other.function, other.root)
            || are_sizes_known && self.size_class != other.size_class
    }
}

impl JobCalls {
    /// Returns the calls that had not returned, and what they wait for.
    pub fn open_calls(&self) -> Vec<OpenCall> {
        let mut ends: Vec<ProcessEnds> = (0..self.processes).map(|_| ProcessEnds::default()).collect();
        if !self.timelines.iter().any(|timeline| timeline.is_open) {
            return Vec::new();
        }
        for timeline in &self.timelines {
            let Some(own) = ends.get_mut(timeline.process as usize) else { continue };
            own.lacks_calls |= timeline.lacks_calls;
            for end in timeline.message_ends.iter().filter(|end| end.role != MessageRole::Probe) {
                if end.peer == ANY || end.tag == ANY {
                    own.unknown.insert(end.communicator);
                    continue;
                }
                let counts = if end.role.is_send() { &mut own.sends } else { &mut own.receives };
                *counts.entry((end.communicator, end.peer, end.tag)).or_default() += 1;
            }
            let entries = timeline.entries.iter();
            own.entered.extend(entries.map(|one| ((one.communicator, one.number), EntryForm::of(one))));
        }
        // The clocks of nodes may not be comparable.
        let mut end_of_node: HashMap<u32, i64> = HashMap::new();
        for timeline in &self.timelines {
            let end = end_of_node.entry(timeline.node).or_insert(timeline.end_ns);
            *end = timeline.end_ns.max(*end);
        }
        let end_of =
            |timeline: &CallTimeline| end_of_node.get(&timeline.node).copied().unwrap_or(timeline.end_ns);
        let numbered = (0u32..).zip(&self.timelines).filter(|(_, timeline)| timeline.is_open);
        numbered
            .filter_map(|(number, timeline)| self.open_call(number, timeline, &ends, end_of(timeline)))
            .collect()
    }

    fn open_call(
        &self,
        number: u32,
        timeline: &CallTimeline,
        ends: &[ProcessEnds],
        end_ns: i64,
    ) -> Option<OpenCall> {
        let last = timeline.calls.len().checked_sub(1)?;
        let (call, entered) = (last as u32, timeline.calls[last].enter_ns);
        let blocking = timeline.message_ends.iter().filter(|end| end.call == call && end.is_blocking);
        let mut messages: Vec<MessageEnd> = blocking.copied().collect();
        let blocking = timeline.entries.iter().filter(|entry| entry.call == call && entry.is_blocking);
        let label = |of: &CallTimeline, entry: &CollectiveEntry| of.calls[entry.call as usize].label;
        let mut collectives: Vec<(CollectiveEntry, u32)> =
            blocking.map(|entry| (*entry, label(timeline, entry))).collect();
        // A call without operations of its own, such as MPI_Wait, completes those that the process began before.
        if messages.is_empty() && collectives.is_empty() {
            let own = self.timelines.iter().filter(|other| other.process == timeline.process);
            let completed: HashSet<(u32, BegunOperation)> =
                own.flat_map(|other| &other.completions).map(|one| (one.begun_on, one.operation)).collect();
            let own = (0u32..).zip(&self.timelines).filter(|(_, other)| other.process == timeline.process);
            for (begun_on, other) in own {
                let is_open = |operation| !completed.contains(&(begun_on, operation));
                let pending = (0u32..).zip(&other.message_ends).filter(|(_, end)| !end.is_blocking);
                let pending = pending.filter(|(place, _)| is_open(BegunOperation::Message(*place)));
                messages.extend(pending.map(|(_, end)| *end));
                let pending = (0u32..).zip(&other.entries).filter(|(_, entry)| !entry.is_blocking);
                let pending = pending.filter(|(place, _)| is_open(BegunOperation::Collective(*place)));
                collectives.extend(pending.map(|(_, entry)| (*entry, label(other, entry))));
            }
        }
        let process = timeline.process;
        Some(OpenCall {
            timeline: number,
            call,
            open_ns: end_ns.abs_diff(entered),
            collectives: collectives
                .iter()
                .map(|(entry, label)| self.open_collective(process, entry, *label, ends))
                .collect(),
            messages: messages.iter().map(|end| self.open_message(process, *end, ends)).collect(),
        })
    }

    fn open_collective(
        &self,
        process: u32,
        entry: &CollectiveEntry,
        label: u32,
        ends: &[ProcessEnds],
    ) -> OpenCollective {
        let CollectiveEntry { communicator, number, .. } = *entry;
        let groups = self.communicators.get(communicator as usize).map_or(&[][..], |members| &members.groups);
        let root = usize::try_from(entry.root).ok();
        let own = groups.first().and_then(|group| group.iter().position(|member| *member == process));
        let waits_for = |rank: usize| match entry.waits {
            CollectiveWaits::ForAll => true,
            CollectiveWaits::ForRoot => Some(rank) == root,
            CollectiveWaits::RootForAll => own == root,
            CollectiveWaits::ForLower => own.is_none_or(|own| rank < own),
            CollectiveWaits::Unknown => false,
        };
        let members = groups.iter().flat_map(|group| group.iter().enumerate());
        let others = members.filter(|(_, member)| **member != process && **member != UNKNOWN);
        let (mut missing, mut unknown, mut differing) = (Vec::new(), Vec::new(), Vec::new());
        for (rank, member) in others {
            let of_member = ends.get(*member as usize);
            match of_member.and_then(|ends| ends.entered.get(&(communicator, number))) {
                None if !waits_for(rank) => {}
                None if of_member.is_some_and(|ends| ends.lacks_calls) => unknown.push(*member),
                None => missing.push(*member),
                Some(found) if found.differs(EntryForm::of(entry)) => differing.push(*member),
                _ => {}
            }
        }
        OpenCollective { communicator, number, label, missing, unknown, differing }
    }

    fn open_message(&self, process: u32, end: MessageEnd, ends: &[ProcessEnds]) -> OpenMessage {
        let group = match self.communicators.get(end.communicator as usize).map(|members| &members.groups[..])
        {
            Some([only]) => only,
            _ => return OpenMessage { end, process: None, lacks_other_end: None },
        };
        let rank = group.iter().position(|member| *member == process);
        let peer = usize::try_from(end.peer).ok().and_then(|peer| group.get(peer)).copied();
        let peer = peer.filter(|peer| *peer != UNKNOWN);
        let lacks_other_end = peer.zip(rank).and_then(|(peer, rank)| {
            let (own, others) = (ends.get(process as usize)?, ends.get(peer as usize)?);
            if end.tag == ANY
                || own.lacks_calls
                || others.lacks_calls
                || own.unknown.contains(&end.communicator)
                || others.unknown.contains(&end.communicator)
            {
                return None;
            }
            let own_key = (end.communicator, end.peer, end.tag);
            let other_key = (end.communicator, i32::try_from(rank).ok()?, end.tag);
            let (begun, answered) = match end.role.is_send() {
                true => (own.sends.get(&own_key), others.receives.get(&other_key)),
                false => (own.receives.get(&own_key), others.sends.get(&other_key)),
            };
            Some(begun > answered)
        });
        OpenMessage { end, process: peer, lacks_other_end }
    }

    /// Returns the processes that wait for one another, in groups: each of a group waits for all others of it, directly or
    /// by way of others.
    pub fn deadlocks(&self, calls: &[OpenCall]) -> Vec<Vec<u32>> {
        let mut waits: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for call in calls {
            if let Some(timeline) = self.timelines.get(call.timeline as usize) {
                waits.entry(timeline.process).or_default().extend(call.waits_for());
            }
        }
        // A process that waits for none of those that are left is in no group.
        loop {
            let left: HashSet<u32> = waits.keys().copied().collect();
            waits.values_mut().for_each(|others| others.retain(|other| left.contains(other)));
            let before = waits.len();
            waits.retain(|_, others| !others.is_empty());
            if waits.len() == before {
                break;
            }
        }
        let mut waiting: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (process, others) in &waits {
            others.iter().for_each(|other| {
                waiting.entry(*other).or_default().insert(*process);
            });
        }
        // The algorithm of Kosaraju: in the reverse order in which a search leaves them, processes reach their groups.
        let mut left = Vec::new();
        let mut seen = HashSet::new();
        waits.keys().for_each(|process| left.extend(reached(*process, &waits, &mut seen)));
        let mut seen = HashSet::new();
        let groups = left.iter().rev().map(|process| reached(*process, &waiting, &mut seen));
        let waits_for_itself = |group: &[u32]| {
            group.iter().any(|process| waits.get(process).is_some_and(|others| others.contains(process)))
        };
        let mut groups: Vec<Vec<u32>> =
            groups.filter(|group| group.len() > 1 || waits_for_itself(group)).collect();
        groups.iter_mut().for_each(|group| group.sort_unstable());
        groups.sort_unstable();
        groups
    }
}

/// Returns the processes that are reached from one and not seen before, in the order in which a search leaves them.
fn reached(from: u32, to: &BTreeMap<u32, BTreeSet<u32>>, seen: &mut HashSet<u32>) -> Vec<u32> {
    let mut left = Vec::new();
    let next_of = |process: u32| to.get(&process).into_iter().flatten().copied();
    let mut path = Vec::new();
    if seen.insert(from) {
        path.push((from, next_of(from)));
    }
    while let Some((process, others)) = path.last_mut() {
        match others.find(|other| !seen.contains(other)) {
            Some(other) => {
                seen.insert(other);
                path.push((other, next_of(other)));
            }
            None => {
                left.push(*process);
                path.pop();
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_calls::{Call, CommunicatorMembers};

    /// A job on one communicator, of which each process ends in a call.
    fn job(ends: &[(&[MessageEnd], &[CollectiveEntry])]) -> JobCalls {
        let timeline = |(process, (messages, entries)): (u32, &(&[MessageEnd], &[CollectiveEntry]))| {
            let last = messages.iter().map(|end| end.call).chain(entries.iter().map(|one| one.call)).max();
            let calls = 0..last.map_or(0, |last| i64::from(last) + 1);
            let calls =
                calls.map(|place| Call { enter_ns: place * 100, duration_ns: 50, label: 0 }).collect();
            CallTimeline {
                process,
                end_ns: 1_000,
                calls,
                message_ends: messages.to_vec(),
                entries: entries.to_vec(),
                is_open: last.is_some(),
                ..CallTimeline::default()
            }
        };
        let members = (0..ends.len() as u32).collect();
        JobCalls {
            timelines: (0u32..).zip(ends).map(timeline).collect(),
            communicators: vec![CommunicatorMembers { groups: vec![members] }],
            processes: ends.len() as u32,
            ..JobCalls::default()
        }
    }

    fn receive(call: u32, peer: i32) -> MessageEnd {
        MessageEnd {
            call,
            communicator: 0,
            peer,
            tag: 3,
            bytes: 8,
            role: MessageRole::Receive,
            is_blocking: true,
        }
    }

    fn enter(call: u32, number: u32, root: i32) -> CollectiveEntry {
        let waits = CollectiveWaits::ForAll;
        CollectiveEntry {
            call,
            communicator: 0,
            number,
            function: 1,
            root,
            waits,
            is_blocking: true,
            size_class: 5,
            is_size_shared: true,
        }
    }

    #[test]
    fn a_rank_that_misses_a_collective_is_waited_for() {
        let job = job(&[
            (&[], &[enter(0, 0, -1), enter(1, 1, -1)]),
            (&[], &[enter(0, 0, -1), enter(1, 1, -1)]),
            (&[receive(1, 0)], &[enter(0, 0, -1)]),
        ]);
        let open = job.open_calls();
        let waits: Vec<Vec<u32>> = open.iter().map(|call| call.waits_for().into_iter().collect()).collect();
        assert_eq!(waits, [vec![2], vec![2], vec![0]]);
        assert_eq!(open[0].open_ns, 900);
        assert_eq!(job.deadlocks(&open), [vec![0, 2]]);
    }

    #[test]
    fn a_rank_with_missing_calls_may_have_entered() {
        let mut job = job(&[(&[], &[enter(0, 0, -1), enter(1, 1, -1)]), (&[], &[enter(0, 0, -1)])]);
        job.timelines[1].lacks_calls = true;
        let open = job.open_calls();
        let found = &open[0].collectives[0];
        assert_eq!((&found.missing[..], &found.unknown[..]), (&[][..], &[1][..]));
        assert!(open[0].waits_for().is_empty());
    }

    #[test]
    fn all_that_wait_for_one_another_are_in_a_deadlock() {
        let waits = |others: &[u32]| OpenCollective {
            communicator: 0,
            number: 0,
            label: 0,
            missing: others.to_vec(),
            unknown: Vec::new(),
            differing: Vec::new(),
        };
        let entered: &[CollectiveEntry] = &[enter(0, 0, -1)];
        let job = job(&[(&[][..], entered); 6]);
        let waited_for: [&[u32]; 6] = [&[1, 2], &[0], &[0], &[0], &[5], &[4]];
        let open = |(timeline, others): (u32, &&[u32])| {
            let collectives = vec![waits(others)];
            OpenCall { timeline, call: 0, open_ns: 0, collectives, messages: Vec::new() }
        };
        let open: Vec<OpenCall> = (0..).zip(&waited_for).map(open).collect();
        assert_eq!(job.deadlocks(&open), [vec![0, 1, 2], vec![4, 5]], "nobody waits for process 3");
    }

    #[test]
    fn two_receives_are_a_deadlock_and_an_answered_one_is_not() {
        let crossed = job(&[(&[receive(0, 1)], &[]), (&[receive(0, 0)], &[]), (&[], &[])]);
        assert_eq!(crossed.deadlocks(&crossed.open_calls()), [vec![0, 1]]);
        let send = MessageEnd { role: MessageRole::Send, ..receive(0, 0) };
        let answered = job(&[(&[receive(0, 1)], &[]), (&[send, receive(1, 0)], &[])]);
        let open = answered.open_calls();
        assert_eq!(open[0].messages[0].lacks_other_end, Some(false));
        assert_eq!(answered.deadlocks(&open), [] as [Vec<u32>; 0]);
    }

    #[test]
    fn other_roots_of_a_collective_are_found() {
        let open = job(&[(&[], &[enter(0, 4, 0)]), (&[], &[enter(0, 4, 1)])]).open_calls();
        assert_eq!(
            (&open[0].collectives[0].differing[..], &open[1].collectives[0].differing[..]),
            (&[1][..], &[0][..])
        );
    }
}
