//! The calls of a job in the form that replays read: one list for all timelines, with the durations, dependencies and
//! entries of each call. A replay advances all timelines in turn. Each list of a timeline that it reads costs it a line of
//! the processor's cache, and thousands of timelines have few lines each.

use crate::call_durations::CallDurations;
use crate::call_graph::{Dependency, Entrance, PackedDependency, TimelineDependencies};
use crate::instances::Instances;
use crate::job_calls::{CallTimeline, CollectiveWaits, JobCalls};
use rayon::prelude::*;
use std::ops::Range;

/// Duration that the record of a call has no room for.
const LONG: u32 = u32::MAX;

/// Durations of a call, and where its dependencies and entrances end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PlannedCall {
    /// Duration of the work before the call, ns, or [`LONG`].
    work_ns: u32,
    /// Duration of the call without waiting, ns, or [`LONG`].
    transfer_ns: u32,
    /// Number of dependencies of the timeline up to this call.
    dependencies: u32,
    /// Number of entrances of the timeline up to this call.
    entrances: u32,
    /// Number of calls of the timeline before this one that others await.
    awaited: u32,
}

/// Place of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlannedPlace {
    pub(crate) timeline: usize,
    /// Index of the call in its timeline; that after the last call for the work after it.
    pub(crate) call: usize,
    /// Index of the call in the plan.
    pub(crate) index: usize,
}

/// The calls of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayPlan {
    /// Index of the first call of each timeline, then the number of all. Each timeline has one more than it has calls, for
    /// the work after the last one.
    first_call: Vec<usize>,
    calls: Vec<PlannedCall>,
    /// Number of awaited calls of the timelines before each, then of all.
    first_awaited: Vec<usize>,
    /// Index of the first dependency of each timeline.
    first_dependency: Vec<usize>,
    dependencies: Vec<PackedDependency>,
    /// Index of the first entrance of each timeline, then the number of all.
    first_entrance: Vec<usize>,
    entrances: Vec<Entrance>,
}

impl ReplayPlan {
    /// Joins the timelines with what their calls depend on, and how long these take without waiting.
    pub(crate) fn new(
        job: &JobCalls,
        instances: &Instances,
        found: Vec<TimelineDependencies>,
        transfers: &[CallDurations],
    ) -> ReplayPlan {
        let mut plan = ReplayPlan {
            first_call: vec![0],
            first_awaited: vec![0],
            first_entrance: vec![0],
            ..ReplayPlan::default()
        };
        let mut all = 0;
        for timeline in &job.timelines {
            all += timeline.calls.len() + 1;
            plan.first_call.push(all);
        }
        plan.calls = vec![PlannedCall::default(); all];
        let mut rest = &mut plan.calls[..];
        let mut parts = Vec::with_capacity(job.timelines.len());
        for timeline in &job.timelines {
            let (part, after) = rest.split_at_mut(timeline.calls.len() + 1);
            parts.push(part);
            rest = after;
        }
        let awaited = AwaitedCalls::find(&plan.first_call, instances, &found);
        let timelines = job.timelines.par_iter().zip(&found).zip(transfers).zip(parts).zip(&plan.first_call);
        let counts: Vec<usize> = timelines
            .map(|((((calls, found), transfers), part), first)| {
                fill(part, calls, found, transfers, |call| awaited.has(first + call))
            })
            .collect();
        for (timeline, count) in found.into_iter().zip(counts) {
            plan.first_awaited.push(plan.first_awaited.last().map_or(count, |before| before + count));
            plan.first_dependency.push(plan.dependencies.len());
            plan.dependencies.extend(timeline.dependencies);
            plan.entrances.extend(timeline.entrances);
            plan.first_entrance.push(plan.entrances.len());
        }
        plan
    }

    /// Returns the number of calls, with one more for each timeline.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of calls that others await.
    pub(crate) fn awaited_len(&self) -> usize {
        self.first_awaited.last().copied().unwrap_or(0)
    }

    /// Returns the number of a call among those that others await; `None` if none does.
    #[inline]
    pub(crate) fn awaited_index(&self, place: PlannedPlace) -> Option<usize> {
        let before = self.calls[place.index].awaited;
        let is_awaited = self.calls.get(place.index + 1).is_some_and(|next| next.awaited > before);
        is_awaited.then(|| self.first_awaited[place.timeline] + before as usize)
    }

    /// Returns the place of a call.
    #[inline]
    pub(crate) fn place(&self, timeline: usize, call: usize) -> PlannedPlace {
        PlannedPlace { timeline, call, index: self.first_call[timeline] + call }
    }

    /// Returns the duration of the work before a call, ns.
    #[inline]
    pub(crate) fn work_ns(&self, job: &JobCalls, place: PlannedPlace) -> u64 {
        match self.calls[place.index].work_ns {
            LONG => job.timelines[place.timeline].work_ns_before(place.call),
            ns => u64::from(ns),
        }
    }

    /// Returns the duration of a call without waiting, ns.
    #[inline]
    pub(crate) fn transfer_ns(&self, transfers: &[CallDurations], place: PlannedPlace) -> u64 {
        match self.calls[place.index].transfer_ns {
            LONG => transfers[place.timeline].ns(place.call),
            ns => u64::from(ns),
        }
    }

    /// Returns the index of the first dependency of a timeline.
    pub(crate) fn first_dependency(&self, timeline: usize) -> usize {
        self.first_dependency[timeline]
    }

    /// Returns the index after the last dependency of a call.
    #[inline]
    pub(crate) fn dependencies_end(&self, place: PlannedPlace) -> usize {
        self.first_dependency[place.timeline] + self.calls[place.index].dependencies as usize
    }

    /// Returns a dependency by its index.
    #[inline]
    pub(crate) fn dependency(&self, index: usize) -> PackedDependency {
        self.dependencies[index]
    }

    /// Returns the index of the first entrance of a timeline.
    pub(crate) fn first_entrance(&self, timeline: usize) -> usize {
        self.first_entrance[timeline]
    }

    /// Returns the index after the last entrance of a call.
    #[inline]
    pub(crate) fn entrances_end(&self, place: PlannedPlace) -> usize {
        self.first_entrance[place.timeline] + self.calls[place.index].entrances as usize
    }

    /// Returns the entrances with these indices.
    #[inline]
    pub(crate) fn entrances(&self, indices: Range<usize>) -> &[Entrance] {
        &self.entrances[indices]
    }

    /// Returns the entrances of a timeline, by call.
    pub(crate) fn entrances_of(&self, timeline: usize) -> &[Entrance] {
        &self.entrances[self.first_entrance[timeline]..self.first_entrance[timeline + 1]]
    }
}

/// The calls that others await, a bit for each.
struct AwaitedCalls(Vec<u64>);

impl AwaitedCalls {
    fn find(first_call: &[usize], instances: &Instances, found: &[TimelineDependencies]) -> AwaitedCalls {
        let all = first_call.last().copied().unwrap_or(0);
        let mut awaited = AwaitedCalls(vec![0; all.div_ceil(64)]);
        let mut add = |timeline: u32, call: u32| {
            let index = first_call[timeline as usize] + call as usize;
            awaited.0[index / 64] |= 1 << (index % 64);
        };
        for dependency in found.iter().flat_map(|timeline| &timeline.dependencies) {
            if let Dependency::Enter { timeline, call } = dependency.unpack() {
                add(timeline, call);
            }
        }
        for instance in 0..instances.len() as u32 {
            if instances.get(instance).waits == CollectiveWaits::ForLower {
                instances.members(instance).iter().for_each(|member| add(member.timeline, member.call));
            }
        }
        awaited
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }
}

/// Fills the calls of a timeline. Returns the number of those that others await.
fn fill(
    part: &mut [PlannedCall],
    calls: &CallTimeline,
    found: &TimelineDependencies,
    transfers: &CallDurations,
    is_awaited: impl Fn(usize) -> bool,
) -> usize {
    let short = |ns: u64| u32::try_from(ns).unwrap_or(LONG);
    let (mut dependencies, mut entrances, mut awaited) = (0, 0, 0);
    for (call, planned) in part.iter_mut().enumerate() {
        while found.calls.get(dependencies).is_some_and(|of| *of as usize <= call) {
            dependencies += 1;
        }
        while found.entrances.get(entrances).is_some_and(|entrance| entrance.call as usize <= call) {
            entrances += 1;
        }
        let transfer_ns = if call < calls.calls.len() { transfers.ns(call) } else { 0 };
        *planned = PlannedCall {
            work_ns: short(calls.work_ns_before(call)),
            transfer_ns: short(transfer_ns),
            dependencies: dependencies as u32,
            entrances: entrances as u32,
            awaited,
        };
        awaited += u32::from(is_awaited(call));
    }
    awaited as usize
}
