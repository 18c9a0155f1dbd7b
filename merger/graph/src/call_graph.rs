//! What each call waits for: the calls of other processes on which its end depends.

use crate::call_durations::CallDurations;
use crate::channels::EndRef;
use crate::eager_limit::EagerLimits;
use crate::instances::{Instance, InstanceCounts, Instances, match_instances};
use crate::job_calls::{
    BegunOperation, CallTimeline, CallsError, CollectiveEntry, CollectiveWaits, JobCalls, MessageRole,
};
use crate::messages::{MatchedMessages, MessageCounts, match_messages};
use crate::observed_waits::ObservedWaits;
use crate::replay_plan::ReplayPlan;
use crate::slow_network::SlowNetwork;
use crate::transfers::transfer_times;
use rayon::prelude::*;
use std::sync::OnceLock;

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

/// A dependency in 8 bytes. Timelines have less than 25 bits, so the first bit is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PackedDependency {
    first: u32,
    second: u32,
}

const IS_COLLECTIVE: u32 = 1 << 31;

impl PackedDependency {
    fn new(dependency: Dependency) -> PackedDependency {
        match dependency {
            Dependency::Enter { timeline, call } => PackedDependency { first: timeline, second: call },
            Dependency::Collective { instance, member } => {
                PackedDependency { first: instance | IS_COLLECTIVE, second: member }
            }
        }
    }

    /// Returns the dependency.
    #[inline]
    pub(crate) fn unpack(self) -> Dependency {
        let PackedDependency { first, second } = self;
        match first & IS_COLLECTIVE {
            0 => Dependency::Enter { timeline: first, call: second },
            _ => Dependency::Collective { instance: first & !IS_COLLECTIVE, member: second },
        }
    }
}

/// The dependencies of one timeline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TimelineDependencies {
    /// Call of each dependency, ascending.
    pub(crate) calls: Vec<u32>,
    pub(crate) dependencies: Vec<PackedDependency>,
    /// Instances that the calls enter, by call.
    pub(crate) entrances: Vec<Entrance>,
}

impl TimelineDependencies {
    /// Returns the dependencies of the calls that have some, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[PackedDependency])> {
        let mut place = 0;
        std::iter::from_fn(move || {
            let found = self.at(place)?;
            place += found.1.len();
            Some(found)
        })
    }

    /// Returns the call and all its dependencies, of which the first is at a place.
    fn at(&self, place: usize) -> Option<(u32, &[PackedDependency])> {
        let call = *self.calls.get(place)?;
        let count = self.calls[place..].iter().take_while(|other| **other == call).count();
        Some((call, &self.dependencies[place..place + count]))
    }
}

/// Dependencies of the calls of a job, and the duration of each call without waiting for them.
#[derive(Clone, Debug)]
pub struct CallDependencies {
    instances: Instances,
    timelines: Vec<TimelineDependencies>,
    /// Durations of the calls without waiting, by timeline.
    transfers: Vec<CallDurations>,
    message_counts: MessageCounts,
    slow_network: Option<SlowNetwork>,
}

impl CallDependencies {
    /// Matches the messages and collectives of a job. Then [`JobCalls::forget_messages`] may release most of them.
    ///
    /// # Errors
    /// [`CallsError`], if the calls contradict themselves.
    pub fn find(job: &JobCalls) -> Result<CallDependencies, CallsError> {
        job.check()?;
        let (messages, mut instances) = rayon::join(|| match_messages(job), || match_instances(job));
        let message_counts = messages.counts;
        let slow_network = SlowNetwork::find(job, &messages, &instances);
        let (eager_limits, observed) =
            rayon::join(|| EagerLimits::measure(job, &messages), || ObservedWaits::new(job, &instances));
        let builder = DependencyBuilder { job, eager_limits, observed, messages, instances: &instances };
        let timelines = (0..job.timelines.len()).into_par_iter();
        let timelines: Vec<TimelineDependencies> =
            timelines.map(|timeline| builder.dependencies_of(timeline)).collect();
        drop(builder);
        instances.forget_entries();
        let transfers = transfer_times(job, &instances, &timelines, slow_network.as_ref());
        Ok(CallDependencies { instances, timelines, transfers, message_counts, slow_network })
    }
}

/// The calls of a job with what they depend on.
#[derive(Clone, Debug)]
pub struct CallGraph<'a> {
    pub(crate) job: &'a JobCalls,
    instances: Instances,
    plan: ReplayPlan,
    message_counts: MessageCounts,
    /// Messages that take longer than others.
    pub(crate) slow_network: Option<SlowNetwork>,
    /// The messages, once a partner is asked for.
    messages: OnceLock<MatchedMessages>,
}

impl<'a> CallGraph<'a> {
    /// Matches the messages and collectives of a job.
    ///
    /// # Errors
    /// [`CallsError`], if the calls contradict themselves.
    pub fn new(job: &'a JobCalls) -> Result<CallGraph<'a>, CallsError> {
        Ok(CallGraph::of(job, CallDependencies::find(job)?))
    }

    /// Joins the calls of a job to what they depend on.
    pub fn of(job: &'a JobCalls, found: CallDependencies) -> CallGraph<'a> {
        let CallDependencies { instances, timelines, transfers, message_counts, slow_network } = found;
        let plan = ReplayPlan::new(job, &instances, timelines, transfers);
        CallGraph { job, instances, plan, message_counts, slow_network, messages: OnceLock::new() }
    }

    /// Returns the collectives.
    pub(crate) fn instances(&self) -> &Instances {
        &self.instances
    }

    /// Returns the calls as replays read them.
    pub(crate) fn plan(&self) -> &ReplayPlan {
        &self.plan
    }

    /// Returns the numbers of messages.
    pub fn message_counts(&self) -> MessageCounts {
        self.message_counts
    }

    /// Returns the numbers of collectives.
    pub fn instance_counts(&self) -> InstanceCounts {
        self.instances.counts
    }

    /// Returns timeline and index of the other end of a message. For a probe it is the send that it saw. The first
    /// time, this matches all messages again: their partners are not kept.
    pub fn partner(&self, timeline: usize, end: usize) -> Option<(usize, usize)> {
        let messages = self.messages.get_or_init(|| match_messages(self.job));
        let EndRef { timeline, end } = messages.partner(timeline, end)?;
        Some((timeline as usize, end as usize))
    }
}

/// Finds the dependencies of calls.
struct DependencyBuilder<'a> {
    job: &'a JobCalls,
    messages: MatchedMessages,
    instances: &'a Instances,
    eager_limits: EagerLimits,
    observed: ObservedWaits,
}

impl DependencyBuilder<'_> {
    fn dependencies_of(&self, timeline: usize) -> TimelineDependencies {
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
                let seen =
                    self.observed.last_before_exit(self.job, instance, timeline, entry.call, by_function);
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
        found.extend(calls.local_dependencies.iter().map(|local| {
            let (timeline, call) = (local.awaited_timeline, local.awaited_call);
            (local.call, Dependency::Enter { timeline, call })
        }));
        found.sort_by_key(|(call, _)| *call);
        let calls = found.iter().map(|(call, _)| *call).collect();
        let dependencies = found.iter().map(|(_, dependency)| PackedDependency::new(*dependency)).collect();
        entrances.shrink_to_fit();
        TimelineDependencies { calls, dependencies, entrances }
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
            MessageRole::Send => {
                self.eager_limits.waits_for_receive(is_near(own, other), end.assumed_bytes().into())
            }
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
