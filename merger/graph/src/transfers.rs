//! How long each call takes once what it waits for has come.
//!
//! Where the clocks are good enough, that is the time from the last of its dependencies to its end. Elsewhere it is
//! estimated without comparing clocks: by the shortest duration of the collective, or of calls of its class. Kernels of
//! collectives have [`KernelTimes`].

use crate::call_durations::CallDurations;
use crate::call_graph::{Dependency, PackedDependency, TimelineDependencies, is_near};
use crate::eager_limit::{SIZES, size_class};
use crate::instances::Instances;
use crate::job_calls::{BegunOperation, Call, CallTimeline, CollectiveWaits, JobCalls};
use crate::kernel_times::KernelTimes;
use crate::observed_waits::MIN_DURATION_BOUNDS;
use crate::slow_network::SlowNetwork;
use rayon::prelude::*;

/// Time that a message takes within a node, ns, as far as it limits an estimate.
const NEAR_LATENCY_NS: u64 = 1_000;
/// Time that a message takes between nodes if it was not measured, ns.
const FAR_LATENCY_NS: u64 = 5_000;
/// Bandwidth that limits an estimate, bytes per ns.
const BYTES_PER_NS: u64 = 10;

/// Returns the durations of the calls without waiting, by timeline. Messages of a slow network take longer than is estimated
/// from those of the others.
pub(crate) fn transfer_times(
    job: &JobCalls,
    instances: &Instances,
    dependencies: &[TimelineDependencies],
    slow_network: Option<&SlowNetwork>,
) -> Vec<CallDurations> {
    let graph = MatchedCalls { job, instances };
    let (arrivals, shortest) =
        rayon::join(|| Arrivals::measure(graph), || ShortestCalls::measure(graph, dependencies));
    let kernels = KernelTimes::measure(job, instances);
    let slow_network = slow_network.filter(|slow| slow.messages.exceeds_clock_error());
    let of_timeline = |(timeline, (calls, dependent)): (usize, (&CallTimeline, &TimelineDependencies))| {
        let mut sizes = CompletedSizes::new(graph, calls);
        let mut dependent = dependent.iter().peekable();
        let mut of_call = |(number, own): (u32, &Call)| {
            let Some((_, dependencies)) = dependent.next_if(|(call, _)| *call == number) else {
                return own.duration_ns;
            };
            let after = |latest: i64| {
                u64::try_from(own.exit_ns().saturating_sub(latest.max(own.enter_ns))).unwrap_or(0)
            };
            let kernel = instance_of(dependencies).and_then(|instance| kernels.ns(instance, calls, own));
            if let Some(ns) = kernel {
                return ns;
            }
            let latest = arrivals.latest(graph, calls, dependencies);
            match latest {
                Some((latest, bound)) if bound.saturating_mul(MIN_DURATION_BOUNDS) <= own.duration_ns => {
                    after(latest)
                }
                _ => {
                    let class = class_of(graph, calls, own.label, dependencies, sizes.of_call(number));
                    let ns = arrivals.estimate(graph, own.duration_ns, class, dependencies, &shortest);
                    if let Some(slow) = slow_network.and_then(|slow| slow.of_call(timeline, number)) {
                        return match latest {
                            Some((latest, bound)) if bound <= slow.message_ns => after(latest),
                            _ => ns.saturating_add(slow.message_ns).min(own.duration_ns),
                        };
                    }
                    ns
                }
            }
        };
        (0u32..).zip(&calls.calls).map(&mut of_call).collect()
    };
    job.timelines.par_iter().zip(dependencies).enumerate().map(of_timeline).collect()
}

/// Calls, and the collectives that they enter.
#[derive(Clone, Copy)]
struct MatchedCalls<'a> {
    job: &'a JobCalls,
    instances: &'a Instances,
}

/// What the members of each collective have in common.
struct Arrivals {
    instances: Vec<InstanceArrival>,
}

#[derive(Clone, Copy, Debug)]
struct InstanceArrival {
    /// Time of the last entry, ns in job time.
    latest_ns: i64,
    /// Shortest duration of the calls that enter, ns.
    shortest_ns: u64,
    /// The node that all members share, if they do.
    node: Option<u32>,
    /// Largest error bound of the members, ns; `None` if one is not known.
    bound_ns: Option<u64>,
}

impl Arrivals {
    fn measure(graph: MatchedCalls<'_>) -> Arrivals {
        let of_instance = |instance: u32| {
            let mut arrival =
                InstanceArrival { latest_ns: i64::MIN, shortest_ns: u64::MAX, node: None, bound_ns: Some(0) };
            for (number, member) in graph.instances.members(instance).iter().enumerate() {
                let timeline = &graph.job.timelines[member.timeline as usize];
                let call = &timeline.calls[member.call as usize];
                arrival.latest_ns = arrival.latest_ns.max(call.enter_ns);
                arrival.shortest_ns = arrival.shortest_ns.min(call.duration_ns);
                arrival.node = match number {
                    0 => Some(timeline.node),
                    _ => arrival.node.filter(|node| *node == timeline.node),
                };
                let bounds = arrival.bound_ns.zip(timeline.error_bound_at(call.enter_ns));
                arrival.bound_ns = bounds.map(|(one, other)| one.max(other));
            }
            arrival
        };
        Arrivals { instances: (0..graph.instances.len() as u32).into_par_iter().map(of_instance).collect() }
    }

    /// Returns when the last dependency came, ns in job time, and the error bound of that, ns. `None` if clocks
    /// cannot be compared.
    fn latest(
        &self,
        graph: MatchedCalls<'_>,
        own: &CallTimeline,
        dependencies: &[PackedDependency],
    ) -> Option<(i64, u64)> {
        let mut latest = (i64::MIN, 0);
        for dependency in dependencies {
            let (at, is_on_node, bound) = match dependency.unpack() {
                Dependency::Enter { timeline, call } => {
                    let other = &graph.job.timelines[timeline as usize];
                    let at = other.calls[call as usize].enter_ns;
                    (at, is_near(own, other), other.error_bound_at(at))
                }
                Dependency::Collective { instance, member } => {
                    let arrival = self.instances[instance as usize];
                    let found = graph.instances.get(instance);
                    let at = match found.waits {
                        CollectiveWaits::ForLower => latest_lower(graph, instance, member),
                        _ => arrival.latest_ns,
                    };
                    (at, arrival.node == Some(own.node), arrival.bound_ns)
                }
            };
            let bound = match is_on_node {
                true => 0,
                false => own.error_bound_at(at)?.saturating_add(bound?),
            };
            latest = (latest.0.max(at), latest.1.max(bound));
        }
        Some(latest)
    }

    /// Estimates the duration of a call without its waiting.
    fn estimate(
        &self,
        graph: MatchedCalls<'_>,
        duration_ns: u64,
        class: CallClass,
        dependencies: &[PackedDependency],
        shortest: &ShortestCalls,
    ) -> u64 {
        let is_for_all = |instance: &u32| graph.instances.get(*instance).waits == CollectiveWaits::ForAll;
        if let Some(instance) = instance_of(dependencies).filter(is_for_all) {
            return duration_ns.min(self.instances[instance as usize].shortest_ns);
        }
        let latency = match class.is_near {
            true => NEAR_LATENCY_NS,
            false => graph.job.latency_ns.unwrap_or(FAR_LATENCY_NS),
        };
        duration_ns.min(shortest.ns(class)).min(latency.saturating_add(class.bytes / BYTES_PER_NS))
    }
}

/// Returns the collective on which a call depends, if it does on one.
fn instance_of(dependencies: &[PackedDependency]) -> Option<u32> {
    dependencies.iter().find_map(|dependency| match dependency.unpack() {
        Dependency::Collective { instance, .. } => Some(instance),
        Dependency::Enter { .. } => None,
    })
}

/// Returns when the last member of lower rank entered, ns in job time.
fn latest_lower(graph: MatchedCalls<'_>, instance: u32, member: u32) -> i64 {
    let lower = graph.instances.members(instance).iter().take(member as usize);
    let enters = lower
        .map(|member| graph.job.timelines[member.timeline as usize].calls[member.call as usize].enter_ns);
    enters.max().unwrap_or(i64::MIN)
}

/// The sizes of the messages that the calls of a timeline complete, call by call.
struct CompletedSizes<'a> {
    job: &'a JobCalls,
    calls: &'a CallTimeline,
    end: usize,
    completion: usize,
}

impl<'a> CompletedSizes<'a> {
    fn new(graph: MatchedCalls<'a>, calls: &'a CallTimeline) -> CompletedSizes<'a> {
        CompletedSizes { job: graph.job, calls, end: 0, completion: 0 }
    }

    /// Returns the size of the largest message that a call completes, bytes. The calls ascend from one use to the
    /// next.
    fn of_call(&mut self, call: u32) -> u64 {
        let mut largest = 0;
        while let Some(end) = self.calls.message_ends.get(self.end).filter(|end| end.call <= call) {
            self.end += 1;
            if end.call == call && end.is_blocking {
                largest = largest.max(end.assumed_bytes());
            }
        }
        while let Some(completion) =
            self.calls.completions.get(self.completion).filter(|done| done.call <= call)
        {
            self.completion += 1;
            if let (BegunOperation::Message(end), true) = (completion.operation, completion.call == call) {
                let begun_on = &self.job.timelines[completion.begun_on as usize];
                largest = largest.max(begun_on.message_ends[end as usize].assumed_bytes());
            }
        }
        largest.into()
    }
}

/// Calls that take about equally long.
#[derive(Clone, Copy, Debug)]
struct CallClass {
    label: u32,
    /// Whether they wait for messages of their own node only.
    is_near: bool,
    bytes: u64,
}

fn class_of(
    graph: MatchedCalls<'_>,
    own: &CallTimeline,
    label: u32,
    dependencies: &[PackedDependency],
    bytes: u64,
) -> CallClass {
    let is_on_node = |dependency: &PackedDependency| match dependency.unpack() {
        Dependency::Enter { timeline, .. } => is_near(own, &graph.job.timelines[timeline as usize]),
        Dependency::Collective { .. } => false,
    };
    CallClass { label, is_near: dependencies.iter().all(is_on_node), bytes }
}

/// The shortest duration of each class of calls that wait, ns.
struct ShortestCalls {
    /// By label; of each, by class of size and whether they are near.
    of_label: Vec<Option<Box<[u64; 2 * SIZES]>>>,
}

impl ShortestCalls {
    fn measure(graph: MatchedCalls<'_>, dependencies: &[TimelineDependencies]) -> ShortestCalls {
        let mut shortest = ShortestCalls { of_label: vec![None; graph.job.labels as usize] };
        for (calls, dependent) in graph.job.timelines.iter().zip(dependencies) {
            let mut sizes = CompletedSizes::new(graph, calls);
            for (call, dependencies) in dependent.iter() {
                let own = &calls.calls[call as usize];
                let class = class_of(graph, calls, own.label, dependencies, sizes.of_call(call));
                let of_label = &mut shortest.of_label[own.label as usize];
                let of_label = of_label.get_or_insert_with(|| Box::new([u64::MAX; 2 * SIZES]));
                let ns = &mut of_label[place_of(class)];
                *ns = own.duration_ns.min(*ns);
            }
        }
        shortest
    }

    fn ns(&self, class: CallClass) -> u64 {
        let of_label = self.of_label[class.label as usize].as_ref();
        of_label.map_or(u64::MAX, |of_label| of_label[place_of(class)])
    }
}

fn place_of(class: CallClass) -> usize {
    2 * size_class(class.bytes) + usize::from(class.is_near)
}
