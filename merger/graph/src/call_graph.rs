//! What each call waits for: the calls of other processes on which its end depends.

use crate::channels::EndRef;
use crate::eager_limit::EagerLimits;
use crate::instances::{Instance, InstanceCounts, Instances, match_instances};
use crate::job_calls::{
    BegunOperation, CallTimeline, CallsError, CollectiveEntry, CollectiveWaits, JobCalls, MessageRole,
};
use crate::messages::{MatchedMessages, MessageCounts, match_messages};
use crate::observed_waits::ObservedWaits;

/// Maximum number of members of a collective in which each waits for those of lower rank. Larger ones count as
/// communication without waiting, because the time to evaluate them grows with the square.
const MAX_LOWER_MEMBERS: u32 = 1024;

/// What the end of a call depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dependency {
    /// Another thread has entered a call.
    Enter {
        /// Its timeline.
        timeline: u32,
        /// The call.
        call: u32,
    },
    /// The members for which a member of a collective waits have entered.
    Collective {
        /// The collective.
        instance: u32,
        /// Number of the waiting member.
        member: u32,
    },
}

/// An instance that a call enters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entrance {
    pub(crate) call: u32,
    pub(crate) instance: u32,
    /// Whether the call also completes it.
    pub(crate) is_blocking: bool,
}

/// Lists of several items for each call, in one vector.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ByCall<T> {
    items: Vec<T>,
    /// Calls that have items, ascending, and the index of their first item.
    calls: Vec<(u32, u32)>,
}

impl<T> ByCall<T> {
    fn push(&mut self, call: u32, item: T) {
        if self.calls.last().is_none_or(|(last, _)| *last != call) {
            self.calls.push((call, self.items.len() as u32));
        }
        self.items.push(item);
    }
}

/// The dependencies of one timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimelineDependencies {
    dependencies: ByCall<Dependency>,
    /// Instances that the calls enter, by call.
    pub(crate) entrances: Vec<Entrance>,
}

impl TimelineDependencies {
    /// Returns the dependencies of the calls that have some, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[Dependency])> {
        let ByCall { items, calls } = &self.dependencies;
        calls.iter().enumerate().map(move |(place, (call, first))| {
            let end = calls.get(place + 1).map_or(items.len(), |(_, next)| *next as usize);
            (*call, &items[*first as usize..end])
        })
    }

    /// Returns call and dependencies at a place among the calls that have some.
    pub(crate) fn at(&self, place: usize) -> Option<(u32, &[Dependency])> {
        let ByCall { items, calls } = &self.dependencies;
        let (call, first) = *calls.get(place)?;
        let end = calls.get(place + 1).map_or(items.len(), |(_, next)| *next as usize);
        Some((call, &items[first as usize..end]))
    }
}

/// The calls of a job with what they depend on.
#[derive(Clone, Debug)]
pub struct CallGraph<'a> {
    pub(crate) job: &'a JobCalls,
    pub(crate) instances: Instances,
    pub(crate) timelines: Vec<TimelineDependencies>,
    messages: MatchedMessages,
    eager_limits: EagerLimits,
}

impl<'a> CallGraph<'a> {
    /// Matches the messages and collectives of a job.
    ///
    /// # Errors
    /// [`CallsError`], if the calls contradict themselves.
    pub fn new(job: &'a JobCalls) -> Result<CallGraph<'a>, CallsError> {
        job.check()?;
        let messages = match_messages(job);
        let instances = match_instances(job);
        let eager_limits = EagerLimits::measure(job, &messages);
        let observed = ObservedWaits::new(job, &instances);
        let mut graph = CallGraph { job, instances, timelines: Vec::new(), messages, eager_limits };
        graph.timelines =
            (0..job.timelines.len()).map(|timeline| graph.dependencies_of(timeline, &observed)).collect();
        Ok(graph)
    }

    /// Returns the numbers of messages.
    pub fn message_counts(&self) -> MessageCounts {
        self.messages.counts
    }

    /// Returns the numbers of collectives.
    pub fn instance_counts(&self) -> InstanceCounts {
        self.instances.counts
    }

    /// Returns timeline and index of the other end of a message. For a probe it is the send that it saw.
    pub fn partner(&self, timeline: usize, end: usize) -> Option<(usize, usize)> {
        let EndRef { timeline, end } = self.messages.partner(timeline, end)?;
        Some((timeline as usize, end as usize))
    }

    fn dependencies_of(&self, timeline: usize, observed: &ObservedWaits) -> TimelineDependencies {
        let calls = &self.job.timelines[timeline];
        let mut found: Vec<(u32, Dependency)> = Vec::new();
        let mut entrances = Vec::new();
        for (number, end) in calls.message_ends.iter().enumerate() {
            if end.is_blocking {
                found.extend(self.of_message(timeline, number).map(|dependency| (end.call, dependency)));
            }
        }
        for (number, entry) in calls.entries.iter().enumerate() {
            let Some((instance, _)) = self.instances.of_entry(timeline, number) else { continue };
            let CollectiveEntry { call, is_blocking, .. } = *entry;
            entrances.push(Entrance { call, instance, is_blocking });
            if entry.is_blocking {
                let by_function = self.of_entry(timeline, number);
                let seen = observed.last_before_exit(self.job, instance, timeline, entry.call, by_function);
                found.extend(by_function.into_iter().chain(seen).map(|dependency| (entry.call, dependency)));
            }
        }
        for completion in &calls.completions {
            let begun_on = completion.begun_on as usize;
            let dependency = match completion.operation {
                BegunOperation::Message(end) => self.of_message(begun_on, end as usize),
                BegunOperation::Collective(entry) => self.of_entry(begun_on, entry as usize),
            };
            found.extend(dependency.map(|dependency| (completion.call, dependency)));
        }
        found.sort_by_key(|(call, _)| *call);
        let mut dependencies = ByCall { items: Vec::new(), calls: Vec::new() };
        for (call, dependency) in found {
            dependencies.push(call, dependency);
        }
        TimelineDependencies { dependencies, entrances }
    }

    /// Returns what the completion of a message end depends on.
    fn of_message(&self, timeline: usize, number: usize) -> Option<Dependency> {
        let partner = self.messages.partner(timeline, number)?;
        let own = &self.job.timelines[timeline];
        let other = &self.job.timelines[partner.timeline as usize];
        if own.process == other.process {
            return None;
        }
        let end = &own.message_ends[number];
        let waits = match end.role {
            MessageRole::Receive | MessageRole::Probe | MessageRole::SynchronousSend => true,
            MessageRole::BufferedSend => false,
            MessageRole::Send => self.eager_limits.waits_for_receive(is_near(own, other), end.bytes.into()),
        };
        let call = other.message_ends[partner.end as usize].call;
        waits.then_some(Dependency::Enter { timeline: partner.timeline, call })
    }

    /// Returns what the completion of a collective depends on.
    fn of_entry(&self, timeline: usize, number: usize) -> Option<Dependency> {
        let (instance, member) = self.instances.of_entry(timeline, number)?;
        let Instance { waits, root, members, .. } = *self.instances.get(instance);
        let whole = Dependency::Collective { instance, member };
        match waits {
            CollectiveWaits::ForAll => Some(whole),
            CollectiveWaits::RootForAll => (root == Some(member)).then_some(whole),
            CollectiveWaits::ForLower => (member > 0 && members <= MAX_LOWER_MEMBERS).then_some(whole),
            CollectiveWaits::ForRoot if root == Some(member) => None,
            CollectiveWaits::ForRoot => {
                let root = self.instances.members(instance).get(root? as usize)?;
                Some(Dependency::Enter { timeline: root.timeline, call: root.call })
            }
            CollectiveWaits::Unknown => None,
        }
    }
}

/// Returns whether two processes share a node.
pub(crate) fn is_near(one: &CallTimeline, other: &CallTimeline) -> bool {
    one.node == other.node
}
