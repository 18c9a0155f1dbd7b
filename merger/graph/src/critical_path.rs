//! The critical path: the sequence of work and calls, over all threads, that determined the length of the run.

use crate::label_times::{LabelTimes, SLOTS, SlotTimes};
use crate::replay::ReplayTimes;
use crate::waits::CallWait;

/// Maximum number of pieces that are kept.
const MAX_PIECES: usize = 100_000;

/// A stretch of the critical path on one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPiece {
    /// The thread.
    pub timeline: u32,
    /// The call in which the thread waited before the piece; `None` for the start of the thread.
    pub from_call: Option<u32>,
    /// The call that the thread enters at the end of the piece; the number of calls for the end of the thread.
    pub to_call: u32,
    /// Duration, ns.
    pub ns: u64,
}

/// The critical path of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CriticalPath {
    /// Its pieces, in order of time: the last 100,000.
    pub pieces: Vec<PathPiece>,
    /// Time on the path of each thread by label, ns. `None` stands for all labels without a slot.
    pub by_label: Vec<(u32, Option<u32>, u64)>,
}

/// Walks back from the end of the thread that ended last.
pub(crate) fn critical_path(
    times: &LabelTimes<'_>,
    waits: &[CallWait],
    replayed: &ReplayTimes<1>,
) -> CriticalPath {
    let timelines = times.job().timelines.len();
    let mut waits_of: Vec<Vec<&CallWait>> = vec![Vec::new(); timelines];
    for wait in waits {
        waits_of[wait.timeline as usize].push(wait);
    }
    let mut on_path: Vec<SlotTimes> = vec![[0; SLOTS]; timelines];
    let mut pieces = Vec::new();
    let last =
        (0..timelines).max_by_key(|timeline| (replayed.end_of(*timeline), std::cmp::Reverse(*timeline)));
    let mut place =
        last.map(|timeline| (timeline as u32, times.job().timelines[timeline].calls.len() as u32));
    while let Some((timeline, to_call)) = place {
        // The entry of the call is on the path, a wait in it is not.
        let known = &mut waits_of[timeline as usize];
        while known.last().is_some_and(|wait| wait.call >= to_call) {
            known.pop();
        }
        // Of members that came last together, the very last is on the path.
        let in_call =
            known.iter().rev().take_while(|wait| Some(wait.call) == known.last().map(|last| last.call));
        let wait = in_call.copied().max_by_key(|wait| replayed.enter_ns(wait.cause, wait.cause_call));
        let from_call = wait.map(|wait| wait.call);
        let found = times.between(timeline as usize, from_call.map(|call| call as usize), to_call as usize);
        let ns = found.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        for (sum, ns) in on_path[timeline as usize].iter_mut().zip(found) {
            *sum = sum.saturating_add(ns);
        }
        pieces.push(PathPiece { timeline, from_call, to_call, ns });
        place = wait.map(|wait| (wait.cause, wait.cause_call));
    }
    pieces.truncate(MAX_PIECES);
    pieces.reverse();
    let mut by_label = Vec::new();
    for (timeline, found) in (0u32..).zip(&on_path) {
        let found = found.iter().enumerate().filter(|(_, ns)| **ns > 0);
        by_label.extend(found.map(|(slot, ns)| (timeline, times.label(slot), *ns)));
    }
    by_label.sort_by_key(|(timeline, label, ns)| (std::cmp::Reverse(*ns), *timeline, *label));
    CriticalPath { pieces, by_label }
}
