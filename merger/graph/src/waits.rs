//! The waits of a replay: which thread waited in which call, for which call of which thread, and when the two had
//! last synchronised.

use crate::call_graph::{CallGraph, Dependency};
use crate::job_calls::{CollectiveWaits, JobCalls};
use crate::replay::{ReplayObserver, ReplayTimes, ReplayedExit};
use std::ops::Range;

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
    /// The cause synchronised when it entered its call, so that it waited in that call afterwards, as a call that sends and
    /// receives may.
    pub(crate) is_at_entry: bool,
    /// Time, ns. Members of a collective that came last together have a part each.
    pub(crate) ns: u64,
}

impl CallWait {
    /// Returns the first call of the cause in which its waiting came after the two had synchronised.
    pub(crate) fn first_call_of_cause(&self) -> u32 {
        if self.is_at_entry { self.cause_synchronised } else { self.cause_synchronised.wrapping_add(1) }
    }

    /// Returns whether the thread waited in a step, if there are steps.
    pub(crate) fn is_in_steps(&self, job: &JobCalls) -> bool {
        let steps = &job.timelines[self.timeline as usize].first_call_of_step;
        match (steps.first(), steps.last()) {
            (Some(first), Some(end)) => (*first..*end).contains(&self.call),
            _ => true,
        }
    }
}

/// Collects the waits of a replay.
pub(crate) struct WaitRecorder<'a> {
    graph: &'a CallGraph<'a>,
    /// All waits, in an order in which a wait comes after every wait of any thread that ended before it began.
    waits: Vec<CallWait>,
    /// The calls at which two threads last synchronised by a message, of each with those of larger numbers.
    by_message: Vec<Vec<LastMessage>>,
    /// The last two collectives of all members that each thread left on each communicator.
    by_collective: Vec<Vec<LastCollectives>>,
    /// Number of collectives that each thread has entered.
    entrances: Vec<usize>,
    last_members: LastMembers,
}

/// The calls at which a thread last synchronised with another by a message.
#[derive(Clone, Copy, Debug)]
struct LastMessage {
    other: u32,
    call: u32,
    call_of_other: u32,
    /// The other one had exited its call, and this one entered its own; otherwise the other way around.
    is_other_exited: bool,
}

/// The members that came last, by collective.
#[derive(Clone, Debug)]
struct LastMembers {
    /// Range in `all` of each collective; empty if it is not known yet.
    ranges: Vec<(u32, u32)>,
    all: Vec<(u32, u32)>,
}

impl LastMembers {
    /// Returns the range of the members of a collective that came last.
    fn of(&mut self, graph: &CallGraph<'_>, times: &ReplayTimes<1>, instance: u32) -> Range<usize> {
        let range = &mut self.ranges[instance as usize];
        if range.0 == range.1 {
            let first = self.all.len() as u32;
            self.all.extend(last_of(times, graph.instances().members(instance).iter()));
            *range = (first, self.all.len() as u32);
        }
        range.0 as usize..range.1 as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct LastCollectives {
    communicator: u32,
    /// Instance and call, the latest first.
    last: [(u32, u32); 2],
}

impl<'a> WaitRecorder<'a> {
    pub(crate) fn new(graph: &'a CallGraph<'a>) -> WaitRecorder<'a> {
        let timelines = graph.job.timelines.len();
        let ranges = vec![(0, 0); graph.instances().len()];
        WaitRecorder {
            graph,
            waits: Vec::new(),
            by_message: vec![Vec::new(); timelines],
            by_collective: vec![Vec::new(); timelines],
            entrances: vec![0; timelines],
            last_members: LastMembers { ranges, all: Vec::new() },
        }
    }

    /// Returns all waits, in an order in which a wait comes after every wait of any thread that ended before it began.
    pub(crate) fn finish(mut self) -> Vec<CallWait> {
        self.waits.shrink_to_fit();
        self.waits
    }

    /// Returns the call of each of two threads at which they last synchronised, before these calls, and
    /// [`CallWait::is_at_entry`].
    fn synchronised(&self, own: (u32, u32), cause: (u32, u32)) -> (u32, u32, bool) {
        // The end of the work of a stream is the entry of the call in which the stream waits for the next launch.
        let is_stream = self.graph.job.timelines[own.0 as usize].is_stream;
        let is_earlier = |calls: &(u32, u32, bool)| {
            (calls.0 < own.1 || is_stream && calls.0 == own.1) && calls.1 < cause.1
        };
        let is_lower = own.0 < cause.0;
        let (low, high) = if is_lower { (own.0, cause.0) } else { (cause.0, own.0) };
        let messages = &self.by_message[low as usize];
        let place = messages.binary_search_by_key(&high, |last| last.other);
        let by_message = place.ok().map(|place| match (messages[place], is_lower) {
            (LastMessage { call, call_of_other, is_other_exited, .. }, true) => {
                (call, call_of_other, !is_other_exited)
            }
            (LastMessage { call, call_of_other, is_other_exited, .. }, false) => {
                (call_of_other, call, is_other_exited)
            }
        });
        let mut found = by_message.filter(is_earlier);
        for mine in &self.by_collective[own.0 as usize] {
            let of_cause = &self.by_collective[cause.0 as usize];
            let Some(theirs) = of_cause.iter().find(|theirs| theirs.communicator == mine.communicator) else {
                continue;
            };
            let both = mine.last.iter().flat_map(|mine| theirs.last.iter().map(move |theirs| (mine, theirs)));
            let common = both.filter(|(mine, theirs)| mine.0 == theirs.0 && mine.1 != NO_CALL);
            let common = common.map(|(mine, theirs)| (mine.1, theirs.1, false)).filter(is_earlier);
            found = found.into_iter().chain(common).max();
        }
        found.unwrap_or((NO_CALL, NO_CALL, false))
    }

    fn add(&mut self, timeline: u32, call: u32, cause: (u32, u32), ns: u64) {
        let (synchronised, cause_synchronised, is_at_entry) = self.synchronised((timeline, call), cause);
        let (cause, cause_call) = cause;
        self.waits.push(CallWait {
            timeline,
            call,
            cause,
            cause_call,
            synchronised,
            cause_synchronised,
            is_at_entry,
            ns,
        });
    }

    /// Adds the wait for a collective, shared among the members that came last together.
    fn add_collective(&mut self, times: &ReplayTimes<1>, exit: ReplayedExit<1>, instance: u32, member: u32) {
        let waits = self.graph.instances().get(instance).waits;
        if waits == CollectiveWaits::ForLower {
            let members = self.graph.instances().members(instance).iter().take(member as usize);
            let last = last_of(times, members);
            return self.share(exit, last.len(), |_, place| last[place]);
        }
        let range = self.last_members.of(self.graph, times, instance);
        self.share(exit, range.len(), |recorder, place| recorder.last_members.all[range.start + place]);
    }

    /// Shares a wait among causes. The parts add up to the whole.
    fn share(&mut self, exit: ReplayedExit<1>, causes: usize, cause: impl Fn(&Self, usize) -> (u32, u32)) {
        let is_other = |recorder: &Self, place: &usize| cause(recorder, *place).0 != exit.timeline;
        let count = (0..causes).filter(|place| is_other(self, place)).count() as u64;
        let [waited] = exit.waited_ns;
        let mut number = 0;
        for place in 0..causes {
            if is_other(self, &place) {
                let part = waited / count + u64::from(number < waited % count);
                let cause = cause(self, place);
                self.add(exit.timeline, exit.call, cause, part);
                number += 1;
            }
        }
    }

    /// Notes that two threads synchronised by a message: one exited its call, as the other had entered its own.
    fn note_message(&mut self, exited: (u32, u32), entered: (u32, u32)) {
        let is_other_exited = entered.0 < exited.0;
        let (low, high) = if is_other_exited { (entered, exited) } else { (exited, entered) };
        let last = LastMessage { other: high.0, call: low.1, call_of_other: high.1, is_other_exited };
        let known = &mut self.by_message[low.0 as usize];
        match known.binary_search_by_key(&high.0, |last| last.other) {
            Ok(place) => known[place] = last,
            Err(place) => known.insert(place, last),
        }
    }

    fn note_collective(&mut self, exit: ReplayedExit<1>, instance: u32) {
        let found = self.graph.instances().get(instance);
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

impl ReplayObserver<1> for WaitRecorder<'_> {
    fn exited(&mut self, times: &ReplayTimes<1>, exit: ReplayedExit<1>) {
        match exit.last {
            Some(Dependency::Enter { timeline, call }) => {
                self.add(exit.timeline, exit.call, (timeline, call), exit.waited_ns[0]);
                self.note_message((exit.timeline, exit.call), (timeline, call));
            }
            Some(Dependency::Collective { instance, member }) => {
                self.add_collective(times, exit, instance, member);
            }
            None => {}
        }
        let timeline = exit.timeline as usize;
        let entrances = self.graph.plan().entrances_of(timeline);
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
    times: &ReplayTimes<1>,
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
