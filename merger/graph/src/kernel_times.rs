//! How long the kernels of collectives of GPUs take once the last GPU has begun.
//!
//! ```text
//! all begin:            |---- first ----------|
//!                            |-- second ------|
//!                                    |- last -|            all end together, the last one lasts longest without waiting
//! the last is slow:     |---- first ----------|
//!                                    |- last ---------|    it ends after the others
//! ```
//!
//! Of kernels that end together, the shortest has waited least, so no clocks need be compared. A slow link shows itself by a
//! kernel that ends after the others, by the clocks of several nodes. Where one GPU always begins last with a slow kernel,
//! those of the others are all too long by their waiting. An error of the clock of a node would make all kernels on it longer
//! or shorter, so the ones of the others get the duration of the median.

use crate::instances::{Instances, Member};
use crate::job_calls::{Call, CallTimeline, CollectiveWaits, JobCalls};
use rayon::prelude::*;
use std::ops::RangeInclusive;

/// The kernels of each collective.
pub(crate) struct KernelTimes {
    /// By collective, or empty; `None` if its members are no kernels that wait for all, or the clocks of one have no error
    /// bound.
    instances: Vec<Option<CollectiveKernels>>,
}

/// The kernels of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CollectiveKernels {
    /// The last begin, ns in job time.
    latest_ns: i64,
    /// Earliest and latest time of it by the error bounds of the clocks, ns in job time.
    latest_at_least_ns: i64,
    latest_at_most_ns: i64,
    /// The shortest kernel, ns.
    shortest_ns: u64,
    /// Lower median of the times from the last begin to the ends of the kernels, ns.
    usual_ns: u64,
    /// Whether a kernel surely takes longer after the last begin than the shortest one.
    has_slow: bool,
    /// The node that all members share, if they do.
    node: Option<u32>,
}

impl KernelTimes {
    pub(crate) fn measure(job: &JobCalls, instances: &Instances) -> KernelTimes {
        let of_instance = |instance: u32| {
            let waits_for_all = instances.get(instance).waits == CollectiveWaits::ForAll;
            CollectiveKernels::of(job, instances.members(instance)).filter(|_| waits_for_all)
        };
        // Jobs without GPUs have many collectives, of which nothing needs to be kept.
        let has_streams = job.timelines.iter().any(|timeline| timeline.is_stream);
        let count = if has_streams { instances.len() as u32 } else { 0 };
        KernelTimes { instances: (0..count).into_par_iter().map(of_instance).collect() }
    }

    /// Returns the duration of a kernel without waiting, ns. `None` if the call is none, or clocks cannot be compared.
    pub(crate) fn ns(&self, instance: u32, calls: &CallTimeline, call: &Call) -> Option<u64> {
        self.instances.get(instance as usize)?.as_ref()?.kernel_ns(calls, call)
    }
}

impl CollectiveKernels {
    fn of(job: &JobCalls, members: &[Member]) -> Option<CollectiveKernels> {
        let of = |member: &Member| {
            let calls = &job.timelines[member.timeline as usize];
            (calls, &calls.calls[member.call as usize])
        };
        let node = of(members.first()?).0.node;
        let mut found = CollectiveKernels {
            latest_ns: i64::MIN,
            latest_at_least_ns: i64::MIN,
            latest_at_most_ns: i64::MIN,
            shortest_ns: u64::MAX,
            usual_ns: 0,
            has_slow: false,
            node: members.iter().all(|member| of(member).0.node == node).then_some(node),
        };
        for (calls, call) in members.iter().map(of) {
            let bound = found.bound_ns(calls, call).filter(|_| calls.is_stream)?;
            found.latest_ns = found.latest_ns.max(call.enter_ns);
            found.latest_at_least_ns = found.latest_at_least_ns.max(call.enter_ns.saturating_sub(bound));
            found.latest_at_most_ns = found.latest_at_most_ns.max(call.enter_ns.saturating_add(bound));
            found.shortest_ns = found.shortest_ns.min(call.duration_ns);
        }
        let mut after: Vec<u64> =
            members.iter().map(of).map(|(_, call)| after(call, found.latest_ns)).collect();
        let middle = after.len().saturating_sub(1) / 2;
        found.usual_ns = *after.select_nth_unstable(middle).1;
        let is_slow = |(calls, call): (&CallTimeline, &Call)| {
            found.possible_ns(calls, call).is_some_and(|possible| found.shortest_ns < *possible.start())
        };
        found.has_slow = members.iter().map(of).any(is_slow);
        Some(found)
    }

    /// Returns the error bound of the clock of a member against those of the others, ns.
    fn bound_ns(&self, calls: &CallTimeline, call: &Call) -> Option<i64> {
        let bound = if self.node.is_some() { 0 } else { calls.error_bound_at(call.enter_ns)? };
        i64::try_from(bound).ok()
    }

    /// Returns how long a kernel can have taken after the last begin, ns.
    fn possible_ns(&self, calls: &CallTimeline, call: &Call) -> Option<RangeInclusive<u64>> {
        let bound = self.bound_ns(calls, call)?;
        let latest = self.latest_at_most_ns.saturating_add(bound);
        let earliest = self.latest_at_least_ns.saturating_sub(bound);
        Some(after(call, latest)..=after(call, earliest))
    }

    fn kernel_ns(&self, calls: &CallTimeline, call: &Call) -> Option<u64> {
        let possible = self.possible_ns(calls, call)?;
        Some(if self.shortest_ns < *possible.start() {
            after(call, self.latest_ns)
        } else if !self.has_slow && possible.contains(&self.shortest_ns) {
            self.shortest_ns
        } else {
            self.usual_ns.min(self.shortest_ns).clamp(*possible.start(), *possible.end())
        })
    }
}

/// Returns how long a call lasts after a time and its own begin, ns.
fn after(call: &Call, ns: i64) -> u64 {
    u64::try_from(call.exit_ns().saturating_sub(ns.max(call.enter_ns))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_000;

    /// Kernels of four GPUs on as many nodes, by begin, end, error of the clock and its bound, us.
    fn kernels(of: [(i64, i64, i64, u64); 4]) -> Vec<u64> {
        let timelines = (0u32..).zip(of).map(|(node, (begin, end, off, bound))| CallTimeline {
            node,
            process: node,
            is_stream: true,
            error_bound_ns: Some(bound * US as u64),
            calls: vec![Call {
                enter_ns: (begin + off) * US,
                duration_ns: ((end - begin) * US) as u64,
                label: 0,
            }],
            ..CallTimeline::default()
        });
        let job = JobCalls { timelines: timelines.collect(), ..JobCalls::default() };
        let members: Vec<Member> = (0..4).map(|timeline| Member { timeline, call: 0 }).collect();
        let found = CollectiveKernels::of(&job, &members).unwrap();
        let ns = |calls: &CallTimeline| found.kernel_ns(calls, &calls.calls[0]).unwrap() / US as u64;
        job.timelines.iter().map(ns).collect()
    }

    #[test]
    fn kernels_that_end_together_last_as_long_as_the_shortest() {
        for off in [0, 40, -40] {
            let of = [(0, 510, 0, 1), (200, 510, off, 50), (450, 510, 0, 2), (500, 510, 0, 2)];
            assert_eq!(kernels(of), [10; 4], "{off}");
        }
        // A slow one that does not begin last.
        let of = [(0, 810, 0, 1), (200, 510, 0, 1), (450, 510, 0, 2), (500, 510, 0, 2)];
        assert_eq!(kernels(of), [310, 10, 10, 10]);
    }

    #[test]
    fn clocks_of_others_do_not_make_their_kernels_longer_where_the_last_one_is_slow() {
        for (off, bound) in [(0, 1), (40, 50), (-40, 50), (90, 100), (-90, 100)] {
            let of = [(0, 510, 0, 1), (60, 510, 0, 2), (200, 510, off, bound), (500, 950, 0, 1)];
            assert_eq!(kernels(of), [10, 10, 10, 450], "{off}");
            // One begins hardly earlier than the last.
            let of = [(0, 510, 0, 1), (60, 510, 0, 2), (460, 510, off, bound), (500, 950, 0, 1)];
            let found = kernels(of);
            assert_eq!((&found[..2], found[3]), (&[10, 10][..], 450), "{off}: {found:?}");
            assert!(found[2] <= 50, "{off}: {found:?}");
        }
    }

    #[test]
    fn clocks_that_can_be_wrong_by_more_than_the_slow_kernel_show_nothing() {
        let of = [(0, 510, 0, 900), (60, 510, 0, 900), (200, 510, 0, 900), (500, 950, 0, 900)];
        assert_eq!(kernels(of), [310; 4]);
    }

    #[test]
    fn calls_of_threads_are_no_kernels() {
        let calls = vec![Call { enter_ns: 0, duration_ns: 5, label: 0 }];
        let thread = CallTimeline { calls, ..CallTimeline::default() };
        let job = JobCalls { timelines: vec![thread], ..JobCalls::default() };
        assert_eq!(CollectiveKernels::of(&job, &[Member { timeline: 0, call: 0 }]), None);
        assert_eq!(CollectiveKernels::of(&job, &[]), None);
    }
}
