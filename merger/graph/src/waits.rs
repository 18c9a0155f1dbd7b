//! The waits of a replay: which thread waited in which call, for which call of which thread, and when the two had
//! last synchronised.

use crate::call_graph::{CallGraph, Dependency};
use crate::job_calls::CollectiveWaits;
use crate::replay::{ReplayObserver, ReplayTimes, ReplayedExit};
use std::collections::HashMap;

/// Members of a collective that come last within this share of the waiting share the blame.
const TIE_SHARE: i64 = 100;
/// Maximum number of members that share the blame for a wait.
const MAX_TIED: usize = 64;
/// No call: the start of a timeline.
pub(crate) const NO_CALL: u32 = u32::MAX;

/// Time that a thread waited for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallWait {
    /// The thread that waited.
    pub(crate) timeline: u32,
    /// The call in which it waited.
    pub(crate) call: u32,
    /// The thread for which it waited.
    pub(crate) cause: u32,
    /// The call that the other thread entered last.
    pub(crate) cause_call: u32,
    /// The call of each at which the two had synchronised before; [`NO_CALL`] if there was none.
    pub(crate) synchronised: u32,
    pub(crate) cause_synchronised: u32,
    /// Time, ns. Members of a collective that came last together have a part each.
    pub(crate) ns: u64,
}

/// The waits of a replay.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    /// All waits, in an order in which a wait comes after every wait of any thread that ended before it began.
    pub(crate) all: Vec<CallWait>,
    /// Time that each thread had waited before each call, ns, and before its end.
    waited_before: Vec<Vec<u64>>,
}

impl Waits {
    /// Returns the time that a thread waited in the calls after `from` ([`NO_CALL`] is the start) and before `to`,
    /// ns.
    pub(crate) fn between(&self, timeline: u32, from: u32, to: u32) -> u64 {
        let waited = &self.waited_before[timeline as usize];
        let first = from.wrapping_add(1) as usize;
        if first >= to as usize { 0 } else { waited[to as usize] - waited[first] }
    }

    /// Returns the time that a thread waited in a call, ns.
    pub(crate) fn in_call(&self, timeline: usize, call: usize) -> u64 {
        let waited = &self.waited_before[timeline];
        waited[call + 1] - waited[call]
    }

    /// Returns the time that a thread waited in all, ns.
    pub(crate) fn total(&self, timeline: usize) -> u64 {
        self.waited_before[timeline].last().copied().unwrap_or(0)
    }
}

/// Collects the waits of a replay.
pub(crate) struct WaitRecorder<'a> {
    graph: &'a CallGraph<'a>,
    waits: Waits,
    /// The calls at which two threads last synchronised by a message, by the smaller and the larger timeline.
    by_message: HashMap<(u32, u32), (u32, u32)>,
    /// The last two collectives of all members that each thread left on each communicator.
    by_collective: Vec<Vec<LastCollectives>>,
    /// Number of collectives that each thread has entered.
    entrances: Vec<usize>,
    /// The members that came last, by collective.
    last_members: HashMap<u32, Vec<(u32, u32)>>,
}

#[derive(Clone, Copy, Debug)]
struct LastCollectives {
    communicator: u32,
    /// Instance and call, the latest first.
    last: [(u32, u32); 2],
}

impl<'a> WaitRecorder<'a> {
    pub(crate) fn new(graph: &'a CallGraph<'a>) -> WaitRecorder<'a> {
        let waited = |calls: usize| {
            let mut before = Vec::with_capacity(calls + 1);
            before.push(0);
            before
        };
        let timelines = &graph.job.timelines;
        let waited_before = timelines.iter().map(|timeline| waited(timeline.calls.len())).collect();
        WaitRecorder {
            graph,
            waits: Waits { all: Vec::new(), waited_before },
            by_message: HashMap::new(),
            by_collective: vec![Vec::new(); timelines.len()],
            entrances: vec![0; timelines.len()],
            last_members: HashMap::new(),
        }
    }

    pub(crate) fn finish(self) -> Waits {
        self.waits
    }

    /// Returns the call of each of two threads at which they last synchronised, before these calls.
    fn synchronised(&self, own: (u32, u32), cause: (u32, u32)) -> (u32, u32) {
        let is_earlier = |calls: &(u32, u32)| calls.0 < own.1 && calls.1 < cause.1;
        let ordered = own.0 < cause.0;
        let pair = if ordered { (own.0, cause.0) } else { (cause.0, own.0) };
        let by_message = self.by_message.get(&pair).map(|(low, high)| match ordered {
            true => (*low, *high),
            false => (*high, *low),
        });
        let mut found = by_message.filter(is_earlier);
        for mine in &self.by_collective[own.0 as usize] {
            let of_cause = &self.by_collective[cause.0 as usize];
            let Some(theirs) = of_cause.iter().find(|theirs| theirs.communicator == mine.communicator) else {
                continue;
            };
            let both = mine.last.iter().flat_map(|mine| theirs.last.iter().map(move |theirs| (mine, theirs)));
            let common = both.filter(|(mine, theirs)| mine.0 == theirs.0 && mine.1 != NO_CALL);
            let common = common.map(|(mine, theirs)| (mine.1, theirs.1)).filter(is_earlier);
            found = found.into_iter().chain(common).max();
        }
        found.unwrap_or((NO_CALL, NO_CALL))
    }

    fn add(&mut self, timeline: u32, call: u32, cause: (u32, u32), ns: u64) {
        let (synchronised, cause_synchronised) = self.synchronised((timeline, call), cause);
        let (cause, cause_call) = cause;
        self.waits.all.push(CallWait {
            timeline,
            call,
            cause,
            cause_call,
            synchronised,
            cause_synchronised,
            ns,
        });
    }

    /// Adds the wait for a collective, shared among the members that came last together.
    fn add_collective(&mut self, times: &ReplayTimes, exit: ReplayedExit, instance: u32, member: u32) {
        let members = self.graph.instances.members(instance);
        let waits = self.graph.instances.get(instance).waits;
        let last = match waits {
            CollectiveWaits::ForLower => last_of(times, members.iter().take(member as usize)),
            _ => {
                let known = self.last_members.entry(instance);
                known.or_insert_with(|| last_of(times, members.iter())).clone()
            }
        };
        let last: Vec<(u32, u32)> = last.into_iter().filter(|last| last.0 != exit.timeline).collect();
        let count = last.len() as u64;
        for (number, cause) in (0u64..).zip(last) {
            // The parts add up to the whole.
            let share = exit.waited_ns / count + u64::from(number < exit.waited_ns % count);
            self.add(exit.timeline, exit.call, cause, share);
        }
    }

    fn note_collective(&mut self, exit: ReplayedExit, instance: u32) {
        let found = self.graph.instances.get(instance);
        if found.waits != CollectiveWaits::ForAll {
            return;
        }
        let known = &mut self.by_collective[exit.timeline as usize];
        let mine = (instance, exit.call);
        match known.iter_mut().find(|known| known.communicator == found.communicator) {
            Some(known) => known.last = [mine, known.last[0]],
            None => {
                let last = [mine, (NO_CALL, NO_CALL)];
                known.push(LastCollectives { communicator: found.communicator, last });
            }
        }
    }
}

impl ReplayObserver for WaitRecorder<'_> {
    fn exited(&mut self, times: &ReplayTimes, exit: ReplayedExit) {
        let waited = &mut self.waits.waited_before[exit.timeline as usize];
        let before = waited.last().copied().unwrap_or(0);
        waited.push(before.saturating_add(exit.waited_ns));
        match exit.last {
            Some(Dependency::Enter { timeline, call }) => {
                self.add(exit.timeline, exit.call, (timeline, call), exit.waited_ns);
                let (pair, calls) = match exit.timeline < timeline {
                    true => ((exit.timeline, timeline), (exit.call, call)),
                    false => ((timeline, exit.timeline), (call, exit.call)),
                };
                self.by_message.insert(pair, calls);
            }
            Some(Dependency::Collective { instance, member }) => {
                self.add_collective(times, exit, instance, member);
            }
            None => {}
        }
        let timeline = exit.timeline as usize;
        let entrances = &self.graph.timelines[timeline].entrances;
        while let Some(entrance) = entrances.get(self.entrances[timeline]) {
            if entrance.call > exit.call {
                break;
            }
            self.entrances[timeline] += 1;
            if entrance.is_blocking {
                self.note_collective(exit, entrance.instance);
            }
        }
    }
}

/// Returns the members that came last: those within a small part of the spread of all entries.
fn last_of<'a>(
    times: &ReplayTimes,
    members: impl Iterator<Item = &'a crate::instances::Member> + Clone,
) -> Vec<(u32, u32)> {
    let enters = members.clone().map(|member| times.enter_ns(member.timeline, member.call));
    let (first, last) = (enters.clone().min().unwrap_or(0), enters.clone().max().unwrap_or(0));
    let tie = last.saturating_sub(first) / TIE_SHARE;
    let mut found: Vec<(i64, u32, u32)> = members
        .zip(enters)
        .filter(|(_, at)| last.saturating_sub(*at) <= tie)
        .map(|(member, at)| (at, member.timeline, member.call))
        .collect();
    if found.len() > MAX_TIED {
        found.sort_unstable_by_key(|(at, timeline, _)| (std::cmp::Reverse(*at), *timeline));
        found.truncate(MAX_TIED);
    }
    found.into_iter().map(|(_, timeline, call)| (timeline, call)).collect()
}
