//! Replays the calls of a job: each thread works and communicates as long as it did, and waits for what it depends
//! on. With other durations, the replay says how long the job would have taken.
//!
//! A call depends on the same calls whatever these last, so one pass over the calls replays `N` sets of durations. It is
//! hardly slower than a pass for one, because most of its time goes into finding the calls in memory.

use crate::awaited_enters::AwaitedEnters;
use crate::call_graph::{CallGraph, Dependency, PackedDependency};
use crate::job_calls::CollectiveWaits;
use crate::replay_plan::{PlannedPlace, ReplayPlan};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// `N` sets of durations, ns.
pub(crate) trait ReplayDurations<const N: usize> {
    /// Returns the durations of the work before a call; of the place after the last call, those after it.
    fn work_ns(&self, place: PlannedPlace) -> [u64; N];
    /// Returns the durations of a call without waiting.
    fn transfer_ns(&self, place: PlannedPlace) -> [u64; N];
}

/// Watches a replay of `N` sets of durations.
pub(crate) trait ReplayObserver<const N: usize> {
    /// A thread leaves a call.
    fn exited(&mut self, replay: &ReplayTimes<N>, exit: ReplayedExit<N>);
}

/// A call that has been replayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayedExit<const N: usize> {
    pub(crate) timeline: u32,
    pub(crate) call: u32,
    /// Times of the exit, ns of the replay.
    pub(crate) exit_ns: [i64; N],
    /// Times that the call waited, ns.
    pub(crate) waited_ns: [u64; N],
    /// The dependency that came last with the first set of durations, if the call waited with these.
    pub(crate) last: Option<Dependency>,
}

impl<const N: usize, A: ReplayObserver<N>, B: ReplayObserver<N>> ReplayObserver<N> for (A, B) {
    fn exited(&mut self, replay: &ReplayTimes<N>, exit: ReplayedExit<N>) {
        self.0.exited(replay, exit);
        self.1.exited(replay, exit);
    }
}

/// Time of a call that has not been entered.
const NOT_ENTERED: i64 = i64::MIN;
/// No timeline.
const NONE: u32 = u32::MAX;

/// Times of a replay, ns from the start of the job.
#[derive(Clone, Debug)]
pub(crate) struct ReplayTimes<const N: usize> {
    /// Entries by timeline and call; none with several sets of durations.
    enters: Vec<Vec<i64>>,
    /// Start of each timeline.
    starts: Vec<i64>,
    /// Ends of each timeline.
    ends: Vec<[i64; N]>,
    /// Dependencies that were given up, because calls waited for one another.
    pub(crate) given_up: u64,
}

impl<const N: usize> ReplayTimes<N> {
    /// Returns the length of the job with each set of durations, ns.
    pub(crate) fn lengths_ns(&self) -> [i64; N] {
        std::array::from_fn(|of| self.ends.iter().map(|ends| ends[of]).max().unwrap_or(0))
    }
}

impl ReplayTimes<1> {
    /// Returns when a thread entered a call, ns of the replay.
    pub(crate) fn enter_ns(&self, timeline: u32, call: u32) -> i64 {
        self.enters[timeline as usize][call as usize]
    }

    /// Returns the end of a timeline, ns of the replay.
    pub(crate) fn end_of(&self, timeline: usize) -> i64 {
        self.ends[timeline][0]
    }

    /// Returns the length of a timeline, ns.
    pub(crate) fn length_of(&self, timeline: usize) -> u64 {
        u64::try_from(self.end_of(timeline).saturating_sub(self.starts[timeline])).unwrap_or(0)
    }

    /// Returns the length of the job, ns.
    pub(crate) fn length_ns(&self) -> i64 {
        self.lengths_ns()[0]
    }
}

/// Replays a job with these durations.
pub(crate) fn replay<const N: usize>(
    graph: &CallGraph<'_>,
    durations: &impl ReplayDurations<N>,
    observer: &mut impl ReplayObserver<N>,
) -> ReplayTimes<N> {
    let mut replay = Replay::new(graph);
    replay.run(durations, observer);
    replay.times
}

struct Replay<'a, const N: usize> {
    graph: &'a CallGraph<'a>,
    plan: &'a ReplayPlan,
    times: ReplayTimes<N>,
    cursors: Vec<Cursor<N>>,
    /// Entries of each timeline with several sets of durations.
    awaited_enters: Vec<AwaitedEnters<N>>,
    /// Timelines that can go on.
    ready: VecDeque<u32>,
    /// Calls of each timeline whose entry others wait for, with the waiting timeline.
    waiting_for_call: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    /// Dependency for which each timeline waits.
    awaited: Vec<Option<Dependency>>,
    /// Members of each collective that have entered, and the times of the last, ns.
    entered: Vec<(u32, [i64; N])>,
    /// First timeline that waits for a collective, and the next one after each.
    first_waiting: Vec<u32>,
    next_waiting: Vec<u32>,
}

/// How far a timeline is.
#[derive(Clone, Copy, Debug)]
struct Cursor<const N: usize> {
    /// Number of calls that were entered.
    entered: u32,
    /// Number of calls that were left.
    left: u32,
    /// Exits of the last call, ns.
    exit_ns: [i64; N],
    /// Entries into the call after it, ns.
    enter_ns: [i64; N],
    /// Times of the last of the dependencies of the call that have come.
    latest_ns: [i64; N],
    /// The last of them with the first durations.
    latest: Option<PackedDependency>,
    /// Number of the next dependency.
    dependency: u32,
    /// Number of the next entrance.
    entrance: u32,
}

impl<'a, const N: usize> Replay<'a, N> {
    fn new(graph: &'a CallGraph<'a>) -> Replay<'a, N> {
        let timelines = &graph.job.timelines;
        let are_comparable = graph.job.has_comparable_times();
        let first = timelines.iter().map(|timeline| timeline.start_ns).min().unwrap_or(0);
        let start = |start_ns: i64| match are_comparable {
            true => start_ns.saturating_sub(first),
            false => 0,
        };
        let starts: Vec<i64> = timelines.iter().map(|timeline| start(timeline.start_ns)).collect();
        let plan = graph.plan();
        let cursor = |start: &i64| Cursor {
            entered: 0,
            left: 0,
            exit_ns: [*start; N],
            enter_ns: [*start; N],
            latest_ns: [i64::MIN; N],
            latest: None,
            dependency: 0,
            entrance: 0,
        };
        let cursors = starts.iter().map(cursor).collect();
        let (enters, awaited_enters) = match N {
            1 => (plan.lengths().map(|calls| vec![NOT_ENTERED; calls]).collect(), Vec::new()),
            _ => (Vec::new(), timelines.iter().map(|_| AwaitedEnters::default()).collect()),
        };
        Replay {
            graph,
            plan,
            times: ReplayTimes { enters, starts, ends: vec![[0; N]; timelines.len()], given_up: 0 },
            cursors,
            awaited_enters,
            ready: (0..timelines.len() as u32).collect(),
            waiting_for_call: timelines.iter().map(|_| BinaryHeap::new()).collect(),
            awaited: vec![None; timelines.len()],
            entered: vec![(0, [i64::MIN; N]); graph.instances().len()],
            first_waiting: vec![NONE; graph.instances().len()],
            next_waiting: vec![NONE; timelines.len()],
        }
    }

    fn run(&mut self, durations: &impl ReplayDurations<N>, observer: &mut impl ReplayObserver<N>) {
        loop {
            while let Some(timeline) = self.ready.pop_front() {
                self.advance(timeline, durations, observer);
            }
            // Calls that wait for one another can only come from wrong matches. The one that began first goes on.
            let is_blocked = |timeline: &usize| {
                (self.cursors[*timeline].left as usize) < self.graph.job.timelines[*timeline].calls.len()
            };
            let blocked = (0..self.cursors.len()).filter(is_blocked);
            let first = blocked.min_by_key(|timeline| {
                let call = self.cursors[*timeline].left as usize;
                (self.graph.job.timelines[*timeline].calls[call].enter_ns, *timeline)
            });
            let Some(timeline) = first else { return };
            self.give_up_dependency(timeline);
        }
    }

    fn give_up_dependency(&mut self, timeline: usize) {
        self.cursors[timeline].dependency += 1;
        self.times.given_up += 1;
        let number = timeline as u32;
        match self.awaited[timeline].take() {
            Some(Dependency::Enter { timeline: other, call }) => {
                self.waiting_for_call[other as usize].retain(|Reverse((_, waiting))| *waiting != number);
                self.release_enter(other, call);
            }
            Some(Dependency::Collective { instance, .. }) => {
                let mut rest = std::mem::replace(&mut self.first_waiting[instance as usize], NONE);
                while rest != NONE {
                    let next = std::mem::replace(&mut self.next_waiting[rest as usize], NONE);
                    if rest != number {
                        self.wait_for_collective(rest, instance);
                    }
                    rest = next;
                }
            }
            None => {}
        }
        self.ready.push_back(number);
    }

    fn wait_for_collective(&mut self, timeline: u32, instance: u32) {
        self.next_waiting[timeline as usize] = self.first_waiting[instance as usize];
        self.first_waiting[instance as usize] = timeline;
    }

    /// Replays a timeline until it waits for another.
    fn advance(
        &mut self,
        timeline: u32,
        durations: &impl ReplayDurations<N>,
        observer: &mut impl ReplayObserver<N>,
    ) {
        let t = timeline as usize;
        let calls = self.graph.job.timelines[t].calls.len();
        loop {
            let call = self.cursors[t].left;
            let place = PlannedPlace { timeline: t, call: call as usize };
            if call as usize == calls {
                self.times.ends[t] = plus(self.cursors[t].exit_ns, durations.work_ns(place));
                return;
            }
            if self.cursors[t].entered == call {
                self.enter(timeline, place, durations);
            }
            if !self.dependencies_came(timeline, place) {
                return;
            }
            let cursor = &mut self.cursors[t];
            let enter = cursor.enter_ns;
            let transfers = durations.transfer_ns(place);
            let waited_ns =
                std::array::from_fn(|of| cursor.latest_ns[of].saturating_sub(enter[of]).max(0) as u64);
            cursor.exit_ns = plus(plus(enter, waited_ns), transfers);
            let last = cursor.latest.filter(|_| waited_ns[0] > 0).map(PackedDependency::unpack);
            let exit = ReplayedExit { timeline, call, exit_ns: cursor.exit_ns, waited_ns, last };
            (cursor.latest_ns, cursor.latest) = ([i64::MIN; N], None);
            cursor.left += 1;
            observer.exited(&self.times, exit);
        }
    }

    fn enter(&mut self, timeline: u32, place: PlannedPlace, durations: &impl ReplayDurations<N>) {
        let t = timeline as usize;
        let cursor = &mut self.cursors[t];
        let enter = plus(cursor.exit_ns, durations.work_ns(place));
        let call = cursor.entered;
        (cursor.enter_ns, cursor.entered) = (enter, call + 1);
        if N == 1 {
            self.times.enters[t][place.call] = enter[0];
        } else if let Some(number) = self.plan.awaited_index(place) {
            self.awaited_enters[t].add(enter, self.plan.dependents(t, number));
        }
        let waiting = &mut self.waiting_for_call[t];
        while waiting.peek().is_some_and(|Reverse((awaited, _))| *awaited <= call) {
            self.ready.extend(waiting.pop().map(|Reverse((_, waiting))| waiting));
        }
        let end = self.plan.entrances_end(place);
        let entrances = &self.plan.entrances_of(t)[cursor.entrance as usize..end as usize];
        cursor.entrance = end;
        for entrance in entrances {
            let instance = entrance.instance as usize;
            let (entered, latest) = &mut self.entered[instance];
            (*entered, *latest) = (*entered + 1, latest_of(enter, *latest));
            let found = self.graph.instances().get(entrance.instance);
            if found.waits == CollectiveWaits::ForLower || *entered == found.members {
                let mut waiting = std::mem::replace(&mut self.first_waiting[instance], NONE);
                while waiting != NONE {
                    self.ready.push_back(waiting);
                    waiting = std::mem::replace(&mut self.next_waiting[waiting as usize], NONE);
                }
            }
        }
    }

    /// Returns whether everything that a call depends on has come. Otherwise the timeline waits for the next.
    fn dependencies_came(&mut self, timeline: u32, place: PlannedPlace) -> bool {
        let t = timeline as usize;
        let end = self.plan.dependencies_end(place);
        while self.cursors[t].dependency < end {
            let packed = self.plan.dependency(t, self.cursors[t].dependency);
            let dependency = packed.unpack();
            let Some(at) = self.time_of(dependency) else {
                self.wait_for(timeline, dependency);
                return false;
            };
            let cursor = &mut self.cursors[t];
            if at[0] > cursor.latest_ns[0] {
                cursor.latest = Some(packed);
            }
            cursor.latest_ns = latest_of(at, cursor.latest_ns);
            cursor.dependency += 1;
            if let Dependency::Enter { timeline, call } = dependency {
                self.release_enter(timeline, call);
            }
        }
        true
    }

    /// Notes that a dependency on the entry into a call was used or given up.
    #[inline]
    fn release_enter(&mut self, timeline: u32, call: u32) {
        let place = PlannedPlace { timeline: timeline as usize, call: call as usize };
        if N > 1
            && let Some(number) = self.plan.awaited_index(place)
        {
            self.awaited_enters[place.timeline].release(number);
        }
    }

    /// Returns when a dependency came; `None` if it has not.
    fn time_of(&self, dependency: Dependency) -> Option<[i64; N]> {
        let enter = |timeline: u32, call: u32| {
            let place = PlannedPlace { timeline: timeline as usize, call: call as usize };
            if N > 1 {
                return self.awaited_enters[place.timeline].at(self.plan.awaited_index(place)?);
            }
            let at = self.times.enters[place.timeline][place.call];
            (at != NOT_ENTERED).then_some([at; N])
        };
        match dependency {
            Dependency::Enter { timeline, call } => enter(timeline, call),
            Dependency::Collective { instance, member } => {
                let found = self.graph.instances().get(instance);
                if found.waits == CollectiveWaits::ForLower {
                    let lower = self.graph.instances().members(instance).iter().take(member as usize);
                    return lower
                        .map(|lower| enter(lower.timeline, lower.call))
                        .try_fold([i64::MIN; N], |latest, at| Some(latest_of(latest, at?)));
                }
                let (entered, latest) = self.entered[instance as usize];
                (entered == found.members).then_some(latest)
            }
        }
    }

    fn wait_for(&mut self, timeline: u32, dependency: Dependency) {
        self.awaited[timeline as usize] = Some(dependency);
        match dependency {
            Dependency::Enter { timeline: other, call } => {
                self.waiting_for_call[other as usize].push(Reverse((call, timeline)));
            }
            Dependency::Collective { instance, .. } => self.wait_for_collective(timeline, instance),
        }
    }
}

fn plus<const N: usize>(times: [i64; N], durations: [u64; N]) -> [i64; N] {
    std::array::from_fn(|of| times[of].saturating_add_unsigned(durations[of]))
}

fn latest_of<const N: usize>(one: [i64; N], other: [i64; N]) -> [i64; N] {
    std::array::from_fn(|of| one[of].max(other[of]))
}
