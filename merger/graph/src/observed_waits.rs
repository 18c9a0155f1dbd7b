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
/// Maximum number of members that are compared with one.
const MAX_COMPARED: usize = 256;

/// The members of a collective with a root in the order in which they entered.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedWaits {
    /// By collective; empty where there is no root.
    by_enter: Vec<Vec<(i64, Member)>>,
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
        ObservedWaits { by_enter: (0..instances.len() as u32).map(members_by_enter).collect() }
    }

    /// Returns the entry of the last member that entered before a call of another member ended. `None` if it entered
    /// before the call began, or if the clocks of the two do not show it.
    pub(crate) fn last_before_exit(
        &self,
        job: &JobCalls,
        instance: u32,
        timeline: usize,
        call: u32,
    ) -> Option<Dependency> {
        let own = &job.timelines[timeline];
        let waiting = own.calls.get(call as usize)?;
        let entered = self.by_enter.get(instance as usize)?;
        let before = entered.partition_point(|(at, _)| *at < waiting.exit_ns());
        let later = entered.iter().take(before).rev().take_while(|(at, _)| *at > waiting.enter_ns);
        let is_comparable = |member: &Member| {
            let other = &job.timelines[member.timeline as usize];
            let bound = match own.node == other.node {
                true => Some(0),
                false => {
                    own.error_bound_ns.zip(other.error_bound_ns).map(|(own, other)| own.saturating_add(other))
                }
            };
            let is_seen = |bound: u64| bound.saturating_mul(MIN_DURATION_BOUNDS) <= waiting.duration_ns;
            member.timeline as usize != timeline && bound.is_some_and(is_seen)
        };
        let (_, last) = later.take(MAX_COMPARED).find(|(_, member)| is_comparable(member))?;
        Some(Dependency::Enter { timeline: last.timeline, call: last.call })
    }
}
