//! How long each call takes once what it waits for has come.
//!
//! Where the clocks are good enough, that is the time from the last of its dependencies to its end. Elsewhere it is
//! estimated without comparing clocks: by the shortest duration of the collective, or of calls of its class.

use crate::call_graph::{CallGraph, Dependency, is_near};
use crate::eager_limit::size_class;
use crate::job_calls::{BegunOperation, CallTimeline, CollectiveWaits};
use crate::observed_waits::MIN_DURATION_BOUNDS;
use std::collections::HashMap;

/// Time that a message takes within a node, ns, as far as it limits an estimate.
const NEAR_LATENCY_NS: u64 = 1_000;
/// Time that a message takes between nodes if it was not measured, ns.
const FAR_LATENCY_NS: u64 = 5_000;
/// Bandwidth that limits an estimate, bytes per ns.
const BYTES_PER_NS: u64 = 10;

/// Calls that take about equally long: label, whether they wait for messages of their own node only, class of size.
type CallClass = (u32, bool, usize);

/// Returns the durations of the calls without waiting, ns, by timeline and call.
pub(crate) fn transfer_times(graph: &CallGraph<'_>) -> Vec<Vec<u64>> {
    let arrivals = Arrivals::measure(graph);
    let shortest = shortest_by_class(graph);
    let ns = (0..graph.job.timelines.len()).map(|timeline| {
        let calls = &graph.job.timelines[timeline];
        let mut ns: Vec<u64> = calls.calls.iter().map(|call| call.duration_ns).collect();
        let sizes = sizes_of(graph, calls);
        for (call, dependencies) in graph.timelines[timeline].iter() {
            let own = &calls.calls[call as usize];
            let late = arrivals.latest(graph, calls, dependencies);
            ns[call as usize] = match late {
                Some((latest, bound)) if bound.saturating_mul(MIN_DURATION_BOUNDS) <= own.duration_ns => {
                    let after = own.exit_ns().saturating_sub(latest.max(own.enter_ns));
                    u64::try_from(after).unwrap_or(0)
                }
                _ => {
                    let size = sizes.get(&call).copied().unwrap_or(0);
                    let class = class_of(graph, calls, own.label, dependencies, size);
                    arrivals.estimate(graph, own.duration_ns, class, dependencies, size, &shortest)
                }
            };
        }
        ns
    });
    ns.collect()
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
    fn measure(graph: &CallGraph<'_>) -> Arrivals {
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
                let bounds = arrival.bound_ns.zip(timeline.error_bound_ns);
                arrival.bound_ns = bounds.map(|(one, other)| one.max(other));
            }
            arrival
        };
        Arrivals { instances: (0..graph.instances.len() as u32).map(of_instance).collect() }
    }

    /// Returns when the last dependency came, ns in job time, and the error bound of that, ns. `None` if clocks
    /// cannot be compared.
    fn latest(
        &self,
        graph: &CallGraph<'_>,
        own: &CallTimeline,
        dependencies: &[Dependency],
    ) -> Option<(i64, u64)> {
        let mut latest = (i64::MIN, 0);
        for dependency in dependencies {
            let (at, is_on_node, bound) = match *dependency {
                Dependency::Enter { timeline, call } => {
                    let other = &graph.job.timelines[timeline as usize];
                    (other.calls[call as usize].enter_ns, is_near(own, other), other.error_bound_ns)
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
                false => own.error_bound_ns?.saturating_add(bound?),
            };
            latest = (latest.0.max(at), latest.1.max(bound));
        }
        Some(latest)
    }

    /// Estimates the duration of a call without its waiting.
    fn estimate(
        &self,
        graph: &CallGraph<'_>,
        duration_ns: u64,
        class: CallClass,
        dependencies: &[Dependency],
        size: u64,
        shortest: &HashMap<CallClass, u64>,
    ) -> u64 {
        let of_instance = dependencies.iter().find_map(|dependency| match dependency {
            Dependency::Collective { instance, .. } => Some(*instance),
            Dependency::Enter { .. } => None,
        });
        let is_for_all = |instance: &u32| graph.instances.get(*instance).waits == CollectiveWaits::ForAll;
        if let Some(instance) = of_instance.filter(is_for_all) {
            return duration_ns.min(self.instances[instance as usize].shortest_ns);
        }
        let latency = match class.1 {
            true => NEAR_LATENCY_NS,
            false => graph.job.latency_ns.unwrap_or(FAR_LATENCY_NS),
        };
        let of_class = shortest.get(&class).copied().unwrap_or(u64::MAX);
        duration_ns.min(of_class).min(latency.saturating_add(size / BYTES_PER_NS))
    }
}

/// Returns when the last member of lower rank entered, ns in job time.
fn latest_lower(graph: &CallGraph<'_>, instance: u32, member: u32) -> i64 {
    let lower = graph.instances.members(instance).iter().take(member as usize);
    let enters = lower
        .map(|member| graph.job.timelines[member.timeline as usize].calls[member.call as usize].enter_ns);
    enters.max().unwrap_or(i64::MIN)
}

/// Returns the size of the largest message that each call with messages completes, bytes.
fn sizes_of(graph: &CallGraph<'_>, calls: &CallTimeline) -> HashMap<u32, u64> {
    let mut sizes: HashMap<u32, u64> = HashMap::new();
    let mut note = |call: u32, bytes: u64| {
        let size = sizes.entry(call).or_default();
        *size = (*size).max(bytes);
    };
    for end in calls.message_ends.iter().filter(|end| end.is_blocking) {
        note(end.call, end.bytes.into());
    }
    for completion in &calls.completions {
        if let BegunOperation::Message(end) = completion.operation {
            let begun_on = &graph.job.timelines[completion.begun_on as usize];
            note(completion.call, begun_on.message_ends[end as usize].bytes.into());
        }
    }
    sizes
}

fn class_of(
    graph: &CallGraph<'_>,
    own: &CallTimeline,
    label: u32,
    dependencies: &[Dependency],
    size: u64,
) -> CallClass {
    let is_on_node = |dependency: &Dependency| match *dependency {
        Dependency::Enter { timeline, .. } => is_near(own, &graph.job.timelines[timeline as usize]),
        Dependency::Collective { .. } => false,
    };
    (label, dependencies.iter().all(is_on_node), size_class(size))
}

/// Returns the shortest duration of each class of calls that wait, ns.
fn shortest_by_class(graph: &CallGraph<'_>) -> HashMap<CallClass, u64> {
    let mut shortest = HashMap::new();
    for (calls, dependent) in graph.job.timelines.iter().zip(&graph.timelines) {
        let sizes = sizes_of(graph, calls);
        for (call, dependencies) in dependent.iter() {
            let own = &calls.calls[call as usize];
            let size = sizes.get(&call).copied().unwrap_or(0);
            let class = class_of(graph, calls, own.label, dependencies, size);
            let ns = shortest.entry(class).or_insert(u64::MAX);
            *ns = own.duration_ns.min(*ns);
        }
    }
    shortest
}
