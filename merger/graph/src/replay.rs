//! Replays the calls of a job: each thread works and communicates as long as it did, and waits for what it depends
//! on. With other durations, the replay says how long the job would have taken.

use crate::call_graph::{CallGraph, Dependency};
use crate::job_calls::CollectiveWaits;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Durations of a replay, ns.
pub(crate) trait ReplayDurations {
    /// Returns the duration of the work before a call; of the index after the last call, that after it.
    fn work_ns(&self, timeline: usize, call: usize) -> u64;
    /// Returns the duration of a call without waiting.
    fn transfer_ns(&self, timeline: usize, call: usize) -> u64;
}

/// Watches a replay.
pub(crate) trait ReplayObserver {
    /// A thread leaves a call.
    fn exited(&mut self, replay: &ReplayTimes, exit: ReplayedExit);
}

/// A call that has been replayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayedExit {
    pub(crate) timeline: u32,
    pub(crate) call: u32,
    /// Time of the exit, ns of the replay.
    pub(crate) exit_ns: i64,
    /// Time that the call waited, ns.
    pub(crate) waited_ns: u64,
    /// The dependency that came last, if the call waited.
    pub(crate) last: Option<Dependency>,
}

impl<A: ReplayObserver, B: ReplayObserver> ReplayObserver for (A, B) {
    fn exited(&mut self, replay: &ReplayTimes, exit: ReplayedExit) {
        self.0.exited(replay, exit);
        self.1.exited(replay, exit);
    }
}

/// Observes nothing.
pub(crate) struct Unobserved;

impl ReplayObserver for Unobserved {
    fn exited(&mut self, _: &ReplayTimes, _: ReplayedExit) {}
}

/// Time of a call that has not been entered.
const NOT_ENTERED: i64 = i64::MIN;
/// No timeline.
const NONE: u32 = u32::MAX;

/// Times of a replay, ns from the start of the job.
#[derive(Clone, Debug)]
pub(crate) struct ReplayTimes {
    enters: Vec<Vec<i64>>,
    /// Start of each timeline.
    starts: Vec<i64>,
    /// End of each timeline.
    pub(crate) ends: Vec<i64>,
    /// Dependencies that were given up, because calls waited for one another.
    pub(crate) given_up: u64,
}

impl ReplayTimes {
    /// Returns when a thread entered a call, ns of the replay.
    pub(crate) fn enter_ns(&self, timeline: u32, call: u32) -> i64 {
        self.enters[timeline as usize][call as usize]
    }

    /// Returns the length of a timeline, ns.
    pub(crate) fn length_of(&self, timeline: usize) -> u64 {
        u64::try_from(self.ends[timeline].saturating_sub(self.starts[timeline])).unwrap_or(0)
    }

    /// Returns the length of the job, ns.
    pub(crate) fn length_ns(&self) -> i64 {
        self.ends.iter().copied().max().unwrap_or(0)
    }
}

/// Replays a job with these durations.
pub(crate) fn replay(
    graph: &CallGraph<'_>,
    durations: &impl ReplayDurations,
    observer: &mut impl ReplayObserver,
) -> ReplayTimes {
    let mut replay = Replay::new(graph);
    replay.run(durations, observer);
    replay.times
}

struct Replay<'a> {
    graph: &'a CallGraph<'a>,
    times: ReplayTimes,
    cursors: Vec<Cursor>,
    /// Timelines that can go on.
    ready: VecDeque<u32>,
    /// Calls of each timeline whose entry others wait for, with the waiting timeline.
    waiting_for_call: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    /// Members of each collective that have entered, and the time of the last, ns.
    entered: Vec<(u32, i64)>,
    /// First timeline that waits for a collective, and the next one after each.
    first_waiting: Vec<u32>,
    next_waiting: Vec<u32>,
}

/// How far a timeline is.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Number of calls that were entered.
    entered: u32,
    /// Number of calls that were left.
    left: u32,
    /// Exit of the last call, ns.
    exit_ns: i64,
    /// Place of the first dependency of the next call that has some.
    dependent: u32,
    /// Dependencies of the call that have come, and the last of them.
    came: u32,
    latest_ns: i64,
    latest: Option<Dependency>,
    /// What the timeline waits for.
    awaited: Option<Dependency>,
    /// Next collective that the timeline enters.
    entrance: u32,
}

impl<'a> Replay<'a> {
    fn new(graph: &'a CallGraph<'a>) -> Replay<'a> {
        let timelines = &graph.job.timelines;
        let are_comparable = graph.job.has_comparable_times();
        let first = timelines.iter().map(|timeline| timeline.start_ns).min().unwrap_or(0);
        let start = |start_ns: i64| match are_comparable {
            true => start_ns.saturating_sub(first),
            false => 0,
        };
        let starts: Vec<i64> = timelines.iter().map(|timeline| start(timeline.start_ns)).collect();
        let cursors = starts
            .iter()
            .map(|start| Cursor { exit_ns: *start, latest_ns: i64::MIN, ..Cursor::default() })
            .collect();
        Replay {
            graph,
            times: ReplayTimes {
                enters: timelines.iter().map(|timeline| vec![NOT_ENTERED; timeline.calls.len()]).collect(),
                starts,
                ends: vec![0; timelines.len()],
                given_up: 0,
            },
            cursors,
            ready: (0..timelines.len() as u32).collect(),
            waiting_for_call: timelines.iter().map(|_| BinaryHeap::new()).collect(),
            entered: vec![(0, i64::MIN); graph.instances().len()],
            first_waiting: vec![NONE; graph.instances().len()],
            next_waiting: vec![NONE; timelines.len()],
        }
    }

    fn run(&mut self, durations: &impl ReplayDurations, observer: &mut impl ReplayObserver) {
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
        let cursor = &mut self.cursors[timeline];
        cursor.came += 1;
        self.times.given_up += 1;
        let number = timeline as u32;
        match cursor.awaited.take() {
            Some(Dependency::Enter { timeline: other, .. }) => {
                self.waiting_for_call[other as usize].retain(|Reverse((_, waiting))| *waiting != number);
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
        durations: &impl ReplayDurations,
        observer: &mut impl ReplayObserver,
    ) {
        let t = timeline as usize;
        let calls = self.graph.job.timelines[t].calls.len();
        while (self.cursors[t].left as usize) < calls {
            let call = self.cursors[t].left;
            if self.cursors[t].entered == call {
                self.enter(timeline, call, durations);
            }
            if !self.dependencies_came(timeline, call) {
                return;
            }
            let enter = self.times.enters[t][call as usize];
            let cursor = &mut self.cursors[t];
            let waited = cursor.latest_ns.saturating_sub(enter).max(0) as u64;
            let transfer = durations.transfer_ns(t, call as usize);
            cursor.exit_ns = enter.saturating_add_unsigned(waited).saturating_add_unsigned(transfer);
            let exit = ReplayedExit {
                timeline,
                call,
                exit_ns: cursor.exit_ns,
                waited_ns: waited,
                last: cursor.latest.filter(|_| waited > 0),
            };
            (cursor.came, cursor.latest_ns, cursor.latest) = (0, i64::MIN, None);
            cursor.left += 1;
            observer.exited(&self.times, exit);
        }
        self.times.ends[t] = self.cursors[t].exit_ns.saturating_add_unsigned(durations.work_ns(t, calls));
    }

    fn enter(&mut self, timeline: u32, call: u32, durations: &impl ReplayDurations) {
        let t = timeline as usize;
        let cursor = &mut self.cursors[t];
        let enter = cursor.exit_ns.saturating_add_unsigned(durations.work_ns(t, call as usize));
        self.times.enters[t][call as usize] = enter;
        cursor.entered += 1;
        let waiting = &mut self.waiting_for_call[t];
        while waiting.peek().is_some_and(|Reverse((awaited, _))| *awaited <= call) {
            self.ready.extend(waiting.pop().map(|Reverse((_, waiting))| waiting));
        }
        let entrances = &self.graph.timelines()[t].entrances;
        while let Some(entrance) = entrances.get(cursor.entrance as usize).filter(|next| next.call == call) {
            cursor.entrance += 1;
            let instance = entrance.instance as usize;
            let (entered, latest) = &mut self.entered[instance];
            (*entered, *latest) = (*entered + 1, enter.max(*latest));
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
    fn dependencies_came(&mut self, timeline: u32, call: u32) -> bool {
        let t = timeline as usize;
        let place = self.cursors[t].dependent as usize;
        let Some((of, dependencies)) = self.graph.timelines()[t].at(place) else { return true };
        if of != call {
            return true;
        }
        while let Some(dependency) = dependencies.get(self.cursors[t].came as usize) {
            let dependency = dependency.unpack();
            let Some(at) = self.time_of(dependency) else {
                self.wait_for(timeline, dependency);
                return false;
            };
            let cursor = &mut self.cursors[t];
            if at > cursor.latest_ns {
                (cursor.latest_ns, cursor.latest) = (at, Some(dependency));
            }
            cursor.came += 1;
        }
        self.cursors[t].dependent += dependencies.len() as u32;
        true
    }

    /// Returns when a dependency came; `None` if it has not.
    fn time_of(&self, dependency: Dependency) -> Option<i64> {
        let enter = |timeline: u32, call: u32| {
            Some(self.times.enter_ns(timeline, call)).filter(|at| *at != NOT_ENTERED)
        };
        match dependency {
            Dependency::Enter { timeline, call } => enter(timeline, call),
            Dependency::Collective { instance, member } => {
                let found = self.graph.instances().get(instance);
                if found.waits == CollectiveWaits::ForLower {
                    let lower = self.graph.instances().members(instance).iter().take(member as usize);
                    return lower
                        .map(|lower| enter(lower.timeline, lower.call))
                        .try_fold(i64::MIN, |latest, at| Some(latest.max(at?)));
                }
                let (entered, latest) = self.entered[instance as usize];
                (entered == found.members).then_some(latest)
            }
        }
    }

    fn wait_for(&mut self, timeline: u32, dependency: Dependency) {
        self.cursors[timeline as usize].awaited = Some(dependency);
        match dependency {
            Dependency::Enter { timeline: other, call } => {
                self.waiting_for_call[other as usize].push(Reverse((call, timeline)));
            }
            Dependency::Collective { instance, .. } => self.wait_for_collective(timeline, instance),
        }
    }
}
