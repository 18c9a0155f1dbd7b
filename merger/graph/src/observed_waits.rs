//! For which members those of a collective with a root waited, seen from the times at which all members entered and left.
//!
//! MPI libraries move data along trees: in `MPI_Reduce` a rank between the leaves and the root waits for its part of
//! the tree, in `MPI_Bcast` for its parent. Which ranks these are is not recorded. A member can only have waited for
//! one that entered before it left itself.

use crate::call_graph::Dependency;
use crate::instances::{Instance, Instances, Member};
use crate::job_calls::{CollectiveWaits, JobCalls};

/// The times of members are compared if a call lasts at least this many error bounds.
pub(crate) const MIN_DURATION_BOUNDS: u64 = 16;
/// A member that is not known to wait does so if its call lasts at least this many times as long as the shortest one.
const MIN_SHORTEST: u64 = 2;
/// Maximum number of members that are compared with one.
const MAX_COMPARED: usize = 256;

/// The members of a collective with a root in the order in which they entered.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedWaits {
    /// By collective; empty where there is no root.
    by_enter: Vec<Vec<(i64, Member)>>,
    /// Shortest call of the members of each, ns.
    shortest_ns: Vec<u64>,
}

impl ObservedWaits {
    pub(crate) fn new(job: &JobCalls, instances: &Instances) -> ObservedWaits {
        let members_by_enter = |instance: u32| {
            let Instance { waits, .. } = *instances.get(instance);
            if !matches!(waits, CollectiveWaits::ForRoot | CollectiveWaits::RootForAll) {
                return Vec::new();
            }
            let enter = |member: &Member| {
                job.timelines[member.timeline as usize].calls[member.call as usize].enter_ns
            };
            let members = instances.members(instance).iter();
            let mut entered: Vec<(i64, Member)> = members.map(|member| (enter(member), *member)).collect();
            entered.sort_by_key(|(at, member)| (*at, member.timeline));
            entered
        };
        let shortest = |instance: u32| {
            let members = instances.members(instance).iter();
            let ns = members.map(|member| {
                job.timelines[member.timeline as usize].calls[member.call as usize].duration_ns
            });
            ns.min().unwrap_or(0)
        };
        let all = 0..instances.len() as u32;
        ObservedWaits {
            by_enter: all.clone().map(members_by_enter).collect(),
            shortest_ns: all.map(shortest).collect(),
        }
    }

    /// Returns the entry of the last member that entered before a call of another member ended, if the call lasts
    /// longer than `known`, what it is known to depend on, explains. `None` also if the other entered before the call
    /// began, or if the clocks of the two do not show it.
    pub(crate) fn last_before_exit(
        &self,
        job: &JobCalls,
        instance: u32,
        timeline: usize,
        call: u32,
        known: Option<Dependency>,
    ) -> Option<Dependency> {
        let own = &job.timelines[timeline];
        let waiting = own.calls.get(call as usize)?;
        let entered = self.by_enter.get(instance as usize)?;
        let is_comparable = |other: u32| {
            let other = &job.timelines[other as usize];
            let bound = match own.node == other.node {
                true => Some(0),
                false => {
                    let bounds =
                        own.error_bound_at(waiting.enter_ns).zip(other.error_bound_at(waiting.enter_ns));
                    bounds.map(|(own, other)| own.saturating_add(other))
                }
            };
            bound.is_some_and(|bound| bound.saturating_mul(MIN_DURATION_BOUNDS) <= waiting.duration_ns)
        };
        let explained = match known {
            Some(Dependency::Enter { timeline: other, call }) if is_comparable(other) => {
                job.timelines[other as usize].calls[call as usize].enter_ns.max(waiting.enter_ns)
            }
            // The member waits for all, or it is not seen how long for the root.
            Some(_) => return None,
            None => waiting.enter_ns,
        };
        let rest_ns = waiting.exit_ns().saturating_sub(explained).max(0).unsigned_abs();
        if rest_ns < self.shortest_ns.get(instance as usize)?.saturating_mul(MIN_SHORTEST) {
            return None;
        }
        let before = entered.partition_point(|(at, _)| *at < waiting.exit_ns());
        let later = entered.iter().take(before).rev().take_while(|(at, _)| *at > waiting.enter_ns);
        let is_other =
            |member: &Member| member.timeline as usize != timeline && is_comparable(member.timeline);
        let (_, last) = later.take(MAX_COMPARED).find(|(_, member)| is_other(member))?;
        Some(Dependency::Enter { timeline: last.timeline, call: last.call })
    }
}
