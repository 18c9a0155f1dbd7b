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
//! or shorter, so the ones of the others get one duration: of those whose clocks are compared best with that of the last GPU.

use crate::instances::{Instances, Member};
use crate::job_calls::{Call, CallTimeline, CollectiveWaits, JobCalls};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Clocks are compared as well as the best if their error is at most so many times as large.
const SIMILAR_ERROR: u64 = 2;

/// The kernels of the collectives between nodes. Within a node, one clock shows how long they take.
pub(crate) struct KernelTimes {
    /// By number of the collective; those whose members are kernels that wait for all, on clocks with error bounds.
    collectives: HashMap<u32, CollectiveKernels>,
}

/// The kernels of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CollectiveKernels {
    /// The last begin, ns in job time.
    latest_ns: i64,
    /// Earliest and latest time of it by the error bounds of the clocks.
    at_least: LatestByNode,
    at_most: LatestByNode,
    /// The shortest kernel, ns.
    shortest_ns: u64,
    /// Node of the kernel that begins last, and the error bound of its clock, ns.
    latest_node: u32,
    latest_bound_ns: i64,
    /// Time from the last begin to the ends of the kernels that are not slow, ns: the lower median of those with the smallest
    /// error of their clocks against that of the last one, and that error.
    usual_ns: u64,
    usual_error_ns: u64,
    /// Upper limit of the duration after the last begin, ns: the smallest limit of all kernels.
    least_ns: u64,
    /// Whether a kernel surely takes longer than that.
    has_slow: bool,
    /// The node that all members share, if they do.
    node: Option<u32>,
}

impl KernelTimes {
    pub(crate) fn measure(job: &JobCalls, instances: &Instances) -> KernelTimes {
        let of_instance = |instance: u32| {
            let waits_for_all = instances.get(instance).waits == CollectiveWaits::ForAll;
            let found = CollectiveKernels::of(job, instances.members(instance))?;
            (waits_for_all && found.node.is_none()).then_some((instance, found))
        };
        let has_streams = job.timelines.iter().any(|timeline| timeline.is_stream);
        let count = if has_streams { instances.len() as u32 } else { 0 };
        KernelTimes { collectives: (0..count).into_par_iter().filter_map(of_instance).collect() }
    }

    /// Returns the duration of a kernel without waiting, ns. `None` if the call is none, or clocks need not or cannot be
    /// compared.
    pub(crate) fn ns(&self, instance: u32, calls: &CallTimeline, call: &Call) -> Option<u64> {
        self.collectives.get(&instance)?.kernel_ns(calls, call)
    }
}

/// Returns by how much clocks can be wrong about how much longer the slow kernels of a collective with these members take than
/// its others, ns: the most of the selected kernels; 0 if none of these is surely slow.
pub(crate) fn slow_kernel_error_ns(
    job: &JobCalls,
    members: &[Member],
    is_selected: impl Fn(&Member) -> bool,
) -> u64 {
    let mut selected = members.iter().filter(|member| is_selected(member)).peekable();
    let found = selected.peek().and_then(|_| CollectiveKernels::of(job, members));
    let Some(found) = found else { return 0 };
    let error = |member: &Member| {
        let calls = &job.timelines[member.timeline as usize];
        found.slow_error_ns(calls, &calls.calls[member.call as usize])
    };
    selected.filter_map(error).max().unwrap_or(0)
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
            at_least: LatestByNode::new(node),
            at_most: LatestByNode::new(node),
            shortest_ns: u64::MAX,
            latest_node: node,
            latest_bound_ns: 0,
            usual_ns: 0,
            usual_error_ns: 0,
            least_ns: u64::MAX,
            has_slow: false,
            node: members.iter().all(|member| of(member).0.node == node).then_some(node),
        };
        for (calls, call) in members.iter().map(of) {
            let bound = found.bound_ns(calls, call).filter(|_| calls.is_stream)?;
            if call.enter_ns > found.latest_ns {
                (found.latest_ns, found.latest_node, found.latest_bound_ns) =
                    (call.enter_ns, calls.node, bound);
            }
            found.at_least.add(calls.node, call.enter_ns.saturating_sub(bound));
            found.at_most.add(calls.node, call.enter_ns.saturating_add(bound));
            found.shortest_ns = found.shortest_ns.min(call.duration_ns);
        }
        let at_most = members.iter().map(of).filter_map(|(calls, call)| found.possible_ns(calls, call));
        found.least_ns = at_most.map(|possible| *possible.end()).min().unwrap_or(0);
        let (slow, others): (Vec<&Member>, Vec<&Member>) = members.iter().partition(|member| {
            let (calls, call) = of(member);
            found.is_slow(calls, call)
        });
        found.has_slow = !slow.is_empty();
        let mut compared: Vec<(u64, u64)> = others
            .into_iter()
            .map(of)
            .map(|(calls, call)| (found.error_against_last_ns(calls, call), after(call, found.latest_ns)))
            .collect();
        compared.sort_unstable();
        let best = compared.first().map_or(0, |(error, _)| error.saturating_mul(SIMILAR_ERROR));
        compared.retain(|(error, _)| *error <= best);
        compared.sort_unstable_by_key(|(_, after)| *after);
        if let Some((error, usual)) = compared.get(compared.len().saturating_sub(1) / 2) {
            (found.usual_ns, found.usual_error_ns) = (*usual, *error);
        }
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
        // Begins on its own node are compared by one clock.
        let near = if self.latest_node == calls.node { self.latest_ns } else { i64::MIN };
        let latest = self.at_most.elsewhere_ns(calls.node).saturating_add(bound).max(near);
        let earliest = self.at_least.elsewhere_ns(calls.node).saturating_sub(bound).max(near);
        Some(after(call, latest)..=after(call, earliest))
    }

    /// Returns by how much clocks can be wrong about a time of a member against one of the kernel that begins last, ns.
    fn error_against_last_ns(&self, calls: &CallTimeline, call: &Call) -> u64 {
        if calls.node == self.latest_node {
            return 0;
        }
        self.bound_ns(calls, call).unwrap_or(0).saturating_add(self.latest_bound_ns).unsigned_abs()
    }

    /// Returns whether a kernel surely takes longer after the last begin than another one.
    fn is_slow(&self, calls: &CallTimeline, call: &Call) -> bool {
        self.possible_ns(calls, call).is_some_and(|possible| self.least_ns < *possible.start())
    }

    /// Returns by how much clocks can be wrong about how much longer a slow kernel takes than the others, ns.
    fn slow_error_ns(&self, calls: &CallTimeline, call: &Call) -> Option<u64> {
        let possible = self.possible_ns(calls, call).filter(|_| self.is_slow(calls, call))?;
        let own = after(call, self.latest_ns);
        let of_own = (own.saturating_sub(*possible.start())).max(possible.end().saturating_sub(own));
        Some(of_own.saturating_add(self.usual_error_ns))
    }

    fn kernel_ns(&self, calls: &CallTimeline, call: &Call) -> Option<u64> {
        let possible = self.possible_ns(calls, call)?;
        Some(if self.least_ns < *possible.start() {
            after(call, self.latest_ns)
        } else if !self.has_slow && possible.contains(&self.shortest_ns) {
            self.shortest_ns
        } else {
            self.usual_ns.min(self.shortest_ns).clamp(*possible.start(), *possible.end())
        })
    }
}

/// The latest of times on several nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LatestByNode {
    ns: i64,
    node: u32,
    /// The latest on other nodes.
    elsewhere_ns: i64,
}

impl LatestByNode {
    /// There is no time yet.
    fn new(node: u32) -> LatestByNode {
        LatestByNode { ns: i64::MIN, node, elsewhere_ns: i64::MIN }
    }

    fn add(&mut self, node: u32, ns: i64) {
        if node == self.node {
            self.ns = self.ns.max(ns);
        } else if ns > self.ns {
            *self = LatestByNode { ns, node, elsewhere_ns: self.ns };
        } else {
            self.elsewhere_ns = self.elsewhere_ns.max(ns);
        }
    }

    /// Returns the latest on other nodes than this one, ns.
    fn elsewhere_ns(&self, node: u32) -> i64 {
        if node == self.node { self.elsewhere_ns } else { self.ns }
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

    /// Node, begin and end of a kernel, error of its clock and the bound of that, us.
    type PlacedKernel = (u32, i64, i64, i64, u64);

    /// Returns the durations without waiting of kernels, and the errors of slow ones, us.
    fn kernels_on_nodes(of: &[PlacedKernel]) -> (Vec<u64>, Vec<u64>) {
        let timelines = (0u32..).zip(of).map(|(process, (node, begin, end, off, bound))| CallTimeline {
            node: *node,
            process,
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
        let members: Vec<Member> =
            (0..of.len() as u32).map(|timeline| Member { timeline, call: 0 }).collect();
        let found = CollectiveKernels::of(&job, &members).unwrap();
        let ns = |calls: &CallTimeline| {
            let [ns, error] = [
                found.kernel_ns(calls, &calls.calls[0]).unwrap(),
                found.slow_error_ns(calls, &calls.calls[0]).unwrap_or(0),
            ];
            (ns / US as u64, error / US as u64)
        };
        job.timelines.iter().map(ns).unzip()
    }

    /// The same for four GPUs on as many nodes, without the errors.
    fn kernels(of: [(i64, i64, i64, u64); 4]) -> Vec<u64> {
        let on_nodes: Vec<PlacedKernel> =
            (0u32..).zip(of).map(|(node, (begin, end, off, bound))| (node, begin, end, off, bound)).collect();
        kernels_on_nodes(&on_nodes).0
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
            let errors: Vec<u64> =
                found.iter().zip([10, 10, 10, 450]).map(|(ns, truth)| ns.abs_diff(truth)).collect();
            assert!(errors[0] <= 2 && errors[1] <= 3 && errors[2] <= 40, "{off}: {found:?}");
            assert!(errors[3] <= bound, "{off}: {found:?}");
        }
    }

    #[test]
    fn kernels_on_the_node_of_the_slow_one_show_how_long_the_others_take() {
        // Two nodes with four GPUs each; the clock of the second one is off.
        for off in [90, -90] {
            let slow = (0, 500, 950, 0, 1);
            let near = [(0, 100, 510, 0, 1), (0, 150, 510, 0, 1), (0, 160, 510, 0, 1)];
            let far = [200, 250, 260, 300].map(|begin| (1, begin, 510, off, 100));
            let all: Vec<_> = near.into_iter().chain(far).chain([slow]).collect();
            let (found, errors) = kernels_on_nodes(&all);
            assert_eq!((&found[..7], found[7]), (&[10; 7][..], 450), "{off}: {found:?}");
            assert_eq!(errors, [0; 8], "the slow one begins last, beside another one");
        }
        // Without another GPU on its node, the clock of another node decides, and can be wrong.
        for off in [90, -9] {
            let all = [(0, 500, 950, 0, 1), (1, 100, 510, off, 100), (1, 150, 510, off, 100)];
            let (found, errors) = kernels_on_nodes(&all);
            assert_eq!((found[0], &errors[1..]), (450, &[0, 0][..]));
            assert!(440_u64.abs_diff(found[0] - found[1]) <= errors[0], "{off}: {found:?} {errors:?}");
            assert_eq!(errors[0], 101);
        }
    }

    #[test]
    fn a_slow_kernel_may_be_the_shortest_of_all() {
        // The others wait for longer than it takes.
        for bound in [1, 20, 100] {
            let of = [(0, 510, 0, bound), (10, 510, 0, bound), (20, 510, 0, bound), (500, 950, 0, bound)];
            assert_eq!(kernels(of), [10, 10, 10, 450], "{bound}");
            let (found, errors) = kernels_on_nodes(&[(0, 0, 510, 0, bound), (1, 500, 950, 0, bound)]);
            assert_eq!((found, errors), (vec![10, 450], vec![0, 2 * bound]));
        }
        // Two of four are slow.
        let of = [(0, 950, 0, 100), (60, 510, 0, 100), (200, 510, 0, 100), (500, 950, 0, 100)];
        assert_eq!(kernels(of), [450, 10, 10, 450]);
    }

    #[test]
    fn the_error_contains_those_of_both_clocks() {
        let all = [(0, 500, 950, -40, 40), (1, 100, 510, 40, 40), (1, 150, 510, 40, 40)];
        let (found, errors) = kernels_on_nodes(&all);
        assert_eq!((found[0] - found[1], errors[0]), (360, 80), "440 is true");
    }

    #[test]
    fn clocks_that_can_be_wrong_by_more_than_the_slow_kernel_show_nothing() {
        let of = [(0, 510, 0, 900), (60, 510, 0, 900), (200, 510, 0, 900), (500, 950, 0, 900)];
        assert_eq!(kernels(of), [310; 4]);
    }

    #[test]
    fn the_latest_elsewhere_is_that_of_other_nodes() {
        let times = [(3, 5), (1, 9), (3, 7), (2, 8), (1, 2), (2, 11), (1, 10)];
        for count in 0..times.len() {
            let mut found = LatestByNode::new(3);
            times[..count].iter().for_each(|(node, ns)| found.add(*node, *ns));
            for node in 0..4 {
                let others = times[..count].iter().filter(|(other, _)| *other != node);
                let expected = others.map(|(_, ns)| *ns).max().unwrap_or(i64::MIN);
                assert_eq!(found.elsewhere_ns(node), expected, "{count} {node}");
            }
        }
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
