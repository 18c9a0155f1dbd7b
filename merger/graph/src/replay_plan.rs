//! The calls of a job in the form that replays read: for each timeline, one list with the durations, dependencies and
//! entries of each call. A replay advances all timelines in turn. Each list of a timeline that it reads costs it a line of
//! the processor's cache, and thousands of timelines have few lines each.
//!
//! The lists of a timeline are allocated separately, so that they take the place of its messages, which were released
//! before. One list of all timelines would be as fast, but needs new memory.

use crate::call_durations::CallDurations;
use crate::call_graph::{Dependency, Entrance, PackedDependency, TimelineDependencies};
use crate::instances::Instances;
use crate::job_calls::{CallTimeline, CollectiveWaits, JobCalls};
use rayon::prelude::*;

/// Duration that the record of a call has no room for.
const LONG: u32 = u32::MAX;

/// Number of dependencies on a call whose entry is needed until the end of a replay.
pub(crate) const ALWAYS: u8 = u8::MAX;

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
}

/// The calls of a timeline.
#[derive(Clone, Debug)]
struct PlannedTimeline {
    /// The calls, and one more for the work after the last of them.
    calls: Vec<PlannedCall>,
    dependencies: Vec<PackedDependency>,
    /// Entrances, by call.
    entrances: Vec<Entrance>,
    /// Number of dependencies on each call that has some, up to [`ALWAYS`].
    dependents: Vec<u8>,
    /// Call and duration of the calls that are [`LONG`] without waiting, ns, by call.
    long_transfers: Vec<(usize, u64)>,
}

/// The calls of a job, by timeline.
#[derive(Clone, Debug)]
pub(crate) struct ReplayPlan(Vec<PlannedTimeline>);

impl ReplayPlan {
    /// Joins the timelines with what their calls depend on, and how long these take without waiting.
    pub(crate) fn new(
        job: &JobCalls,
        instances: &Instances,
        found: Vec<TimelineDependencies>,
        transfers: Vec<CallDurations>,
    ) -> ReplayPlan {
        let awaited = AwaitedCalls::find(job, instances, &found);
        let timelines = job.timelines.par_iter().zip(found).zip(transfers).zip(&awaited.first_call);
        let planned = timelines.map(|(((calls, found), transfers), first)| {
            PlannedTimeline::new(calls, found, transfers, &awaited.dependents[*first..])
        });
        ReplayPlan(planned.collect())
    }

    /// Returns the number of calls of each timeline, with one more for the work after the last of them.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|timeline| timeline.calls.len())
    }

    /// Returns the number of dependencies on a call, up to [`ALWAYS`], by its number among those that others await.
    #[inline]
    pub(crate) fn dependents(&self, timeline: usize, awaited: usize) -> u8 {
        self.0[timeline].dependents[awaited]
    }

    /// Returns the number of a call among those of its timeline that others await; `None` if none does.
    #[inline]
    pub(crate) fn awaited_index(&self, place: PlannedPlace) -> Option<usize> {
        let calls = &self.0[place.timeline].calls;
        let before = calls[place.call].awaited;
        let is_awaited = calls.get(place.call + 1).is_some_and(|next| next.awaited > before);
        is_awaited.then_some(before as usize)
    }

    #[inline]
    fn call(&self, place: PlannedPlace) -> &PlannedCall {
        &self.0[place.timeline].calls[place.call]
    }

    /// Returns the duration of the work before a call, ns.
    #[inline]
    pub(crate) fn work_ns(&self, job: &JobCalls, place: PlannedPlace) -> u64 {
        match self.call(place).work_ns {
            LONG => job.timelines[place.timeline].work_ns_before(place.call),
            ns => u64::from(ns),
        }
    }

    /// Returns the duration of a call without waiting, ns.
    #[inline]
    pub(crate) fn transfer_ns(&self, place: PlannedPlace) -> u64 {
        match self.call(place).transfer_ns {
            LONG => self.0[place.timeline].long_transfer_ns(place.call),
            ns => u64::from(ns),
        }
    }

    /// Returns the number of dependencies of a timeline up to a call.
    #[inline]
    pub(crate) fn dependencies_end(&self, place: PlannedPlace) -> u32 {
        self.call(place).dependencies
    }

    /// Returns a dependency of a timeline.
    #[inline]
    pub(crate) fn dependency(&self, timeline: usize, number: u32) -> PackedDependency {
        self.0[timeline].dependencies[number as usize]
    }

    /// Returns the number of entrances of a timeline up to a call.
    #[inline]
    pub(crate) fn entrances_end(&self, place: PlannedPlace) -> u32 {
        self.call(place).entrances
    }

    /// Returns the entrances of a timeline, by call.
    #[inline]
    pub(crate) fn entrances_of(&self, timeline: usize) -> &[Entrance] {
        &self.0[timeline].entrances
    }
}

impl PlannedTimeline {
    fn new(
        timeline: &CallTimeline,
        found: TimelineDependencies,
        transfers: CallDurations,
        dependents: &[u8],
    ) -> PlannedTimeline {
        let short = |ns: u64| u32::try_from(ns).unwrap_or(LONG);
        let (mut dependencies, mut entrances, mut awaited) = (0, 0, 0);
        let plan = |call: usize| {
            while found.calls.get(dependencies).is_some_and(|of| *of as usize <= call) {
                dependencies += 1;
            }
            while found.entrances.get(entrances).is_some_and(|entrance| entrance.call as usize <= call) {
                entrances += 1;
            }
            let transfer_ns = if call < timeline.calls.len() { transfers.ns(call) } else { 0 };
            let planned = PlannedCall {
                work_ns: short(timeline.work_ns_before(call)),
                transfer_ns: short(transfer_ns),
                dependencies: dependencies as u32,
                entrances: entrances as u32,
                awaited,
            };
            awaited += u32::from(dependents[call] > 0);
            planned
        };
        let calls: Vec<PlannedCall> = (0..=timeline.calls.len()).map(plan).collect();
        let dependents = dependents[..calls.len()].iter().copied().filter(|count| *count > 0).collect();
        let TimelineDependencies { dependencies, entrances, .. } = found;
        let long_transfers = transfers.into_long();
        PlannedTimeline { calls, dependencies, entrances, dependents, long_transfers }
    }

    #[cold]
    fn long_transfer_ns(&self, call: usize) -> u64 {
        let place = self.long_transfers.binary_search_by_key(&call, |(call, _)| *call);
        place.map_or(0, |place| self.long_transfers[place].1)
    }
}

/// The calls that others await.
struct AwaitedCalls {
    /// Number of each timeline's first call among all calls, then the number of all.
    first_call: Vec<usize>,
    /// Number of dependencies on each call, up to [`ALWAYS`].
    dependents: Vec<u8>,
}

impl AwaitedCalls {
    fn find(job: &JobCalls, instances: &Instances, found: &[TimelineDependencies]) -> AwaitedCalls {
        let mut all = 0;
        let mut first_call = vec![0];
        for timeline in &job.timelines {
            all += timeline.calls.len() + 1;
            first_call.push(all);
        }
        let mut awaited = AwaitedCalls { first_call, dependents: vec![0; all] };
        for dependency in found.iter().flat_map(|timeline| &timeline.dependencies) {
            if let Dependency::Enter { timeline, call } = dependency.unpack() {
                let dependents = awaited.of(timeline, call);
                *dependents = dependents.saturating_add(1);
            }
        }
        for instance in 0..instances.len() as u32 {
            if instances.get(instance).waits == CollectiveWaits::ForLower {
                let members = instances.members(instance).iter();
                members.for_each(|member| *awaited.of(member.timeline, member.call) = ALWAYS);
            }
        }
        awaited
    }

    fn of(&mut self, timeline: u32, call: u32) -> &mut u8 {
        &mut self.dependents[self.first_call[timeline as usize] + call as usize]
    }
}
