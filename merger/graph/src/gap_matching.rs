//! Matches the ends of a channel of which some are missing.
//!
//! Before `MPI_Finalize`, every message is received. So ends before the first gap match in order from the start, and
//! those after the last gap in order from the end. What is left between is divided at the collectives in which both
//! processes waited for each other, if no message that is known is under way during one. In each part, the same
//! holds.
//!
//! ```text
//! sends      1 2 3 4 5 6 7 | 8 9 A B C      |: collective
//! receives   1 2 ... 6 7 | 8 9 ... C      ...: gap
//! matched    1 2     6 7 | 8 9     C
//! ```

use crate::job_calls::{CallGap, CallTimeline, CollectiveWaits, JobCalls, UNKNOWN};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// Maximum number of entries into collectives that are looked at to match messages.
const MAX_ENTRIES: usize = 1 << 28;

/// Calls of two processes that entered the same collectives, ascending.
type SharedCalls = Rc<[(u32, u32)]>;

/// The sends or the receives of a channel.
pub(crate) struct ChannelSide<'a> {
    /// Call of each, ascending.
    calls: Vec<u32>,
    /// Gaps in the calls of the process on the communicator.
    gaps: &'a [CallGap],
}

impl<'a> ChannelSide<'a> {
    pub(crate) fn new(calls: Vec<u32>, gaps: &'a [CallGap]) -> ChannelSide<'a> {
        ChannelSide { calls, gaps }
    }

    fn whole(&self) -> SidePart {
        SidePart { ends: 0..self.calls.len(), from: 0, to: u32::MAX }
    }

    /// Returns how many ends of a part are before its first and after its last gap, and how many are missing at most.
    fn around_gaps(&self, part: &SidePart) -> Option<(usize, usize, u64)> {
        let is_inside = |gap: &&CallGap| gap.from <= part.to && gap.to >= part.from;
        let first = self.gaps.iter().find(is_inside)?;
        let last = self.gaps.iter().rfind(is_inside)?;
        let calls = &self.calls[part.ends.clone()];
        let before = calls.partition_point(|call| *call < first.from);
        let after = calls.len() - calls.partition_point(|call| *call < last.to);
        let missing = self.gaps.iter().filter(is_inside).map(|gap| match gap.missing {
            UNKNOWN => u64::MAX,
            missing => u64::from(missing),
        });
        Some((before, after, missing.fold(0, u64::saturating_add)))
    }

    /// Returns the part of a part between so many ends at its start and at its end.
    fn between(&self, part: &SidePart, before: usize, after: usize) -> SidePart {
        let ends = part.ends.start + before..part.ends.end - after;
        let from = if before > 0 { self.calls[ends.start - 1].saturating_add(1) } else { part.from };
        let to = if after > 0 { self.calls[ends.end] } else { part.to };
        SidePart { ends, from, to }
    }

    /// Divides a part at calls that have no ends.
    fn split(&self, part: &SidePart, at: impl Iterator<Item = u32>) -> Vec<SidePart> {
        let mut parts = Vec::new();
        let mut rest = part.clone();
        for call in at {
            let inside = &self.calls[rest.ends.clone()];
            let middle = rest.ends.start + inside.partition_point(|end| *end < call);
            parts.push(SidePart { ends: rest.ends.start..middle, from: rest.from, to: call });
            rest = SidePart { ends: middle..rest.ends.end, from: call.saturating_add(1), to: rest.to };
        }
        parts.push(rest);
        parts
    }
}

/// Some ends of a side that follow one another.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SidePart {
    ends: Range<usize>,
    /// A missing call of the part is before one of the calls `from..=to`.
    from: u32,
    to: u32,
}

/// A channel of which ends are missing.
pub(crate) struct GapMatching<'a> {
    sides: [ChannelSide<'a>; 2],
    /// Pairs of sends and receives.
    pairs: Vec<(usize, usize)>,
}

impl<'a> GapMatching<'a> {
    pub(crate) fn new(sends: ChannelSide<'a>, receives: ChannelSide<'a>) -> GapMatching<'a> {
        GapMatching { sides: [sends, receives], pairs: Vec::new() }
    }

    /// Returns the pairs of sends and receives that are one message. `collectives` returns the calls of sender and
    /// receiver that entered the same collective, ascending.
    pub(crate) fn pairs(mut self, collectives: impl FnOnce() -> SharedCalls) -> Vec<(usize, usize)> {
        let whole = [self.sides[0].whole(), self.sides[1].whole()];
        let Some(rest) = self.match_part(whole) else { return self.pairs };
        if self.pairs.is_empty() || rest.iter().all(|part| part.ends.is_empty()) {
            return self.pairs;
        }
        let collectives = collectives();
        let passes = |(send, receive): &(usize, usize)| {
            let (send, receive) = (self.sides[0].calls[*send], self.sides[1].calls[*receive]);
            let before_send = collectives.partition_point(|(call, _)| *call < send);
            before_send != collectives.partition_point(|(_, call)| *call < receive)
        };
        if self.pairs.iter().any(passes) {
            return self.pairs;
        }
        let is_inside = |(one, other): &&(u32, u32)| {
            (rest[0].from..rest[0].to).contains(one) && (rest[1].from..rest[1].to).contains(other)
        };
        let at = || collectives.iter().filter(is_inside);
        let sends = self.sides[0].split(&rest[0], at().map(|(call, _)| *call));
        let receives = self.sides[1].split(&rest[1], at().map(|(_, call)| *call));
        for parts in sends.into_iter().zip(receives) {
            self.match_part(parts.into());
        }
        self.pairs
    }

    /// Matches the ends of a part at whose start and end no message is under way. Returns what is left.
    fn match_part(&mut self, parts: [SidePart; 2]) -> Option<[SidePart; 2]> {
        let counts = [parts[0].ends.len(), parts[1].ends.len()];
        let gaps = [0, 1].map(|side| self.sides[side].around_gaps(&parts[side]));
        let lacking = |side: usize| counts[1 - side] as i128 - counts[side] as i128;
        let (before, after) = match gaps {
            [None, None] if counts[0] == counts[1] => (counts[0], 0),
            [None, None] => return None,
            [Some(_), None] | [None, Some(_)] => {
                let side = usize::from(gaps[0].is_none());
                let (before, after, missing) = gaps[side].unwrap_or_default();
                match lacking(side) {
                    0 => (counts[0], 0),
                    lacking if lacking < 0 || lacking as u128 > u128::from(missing) => return None,
                    _ => (before, after),
                }
            }
            [Some(sends), Some(receives)] => (sends.0.min(receives.0), sends.1.min(receives.1)),
        };
        let [sends, receives] = &parts;
        self.pairs.extend((0..before).map(|place| (sends.ends.start + place, receives.ends.start + place)));
        self.pairs.extend((1..=after).map(|place| (sends.ends.end - place, receives.ends.end - place)));
        Some([0, 1].map(|side| self.sides[side].between(&parts[side], before, after)))
    }
}

/// The collectives that two processes entered, each of which waits for all members.
pub(crate) struct SharedCollectives<'a> {
    /// The only timeline of each process that has one.
    timelines: Vec<Option<&'a CallTimeline>>,
    known: HashMap<(u32, u32), SharedCalls>,
    entries_left: usize,
}

impl<'a> SharedCollectives<'a> {
    pub(crate) fn new(job: &'a JobCalls) -> SharedCollectives<'a> {
        let mut timelines: Vec<Option<&CallTimeline>> = vec![None; job.processes as usize];
        let mut counts = vec![0; job.processes as usize];
        for timeline in &job.timelines {
            counts[timeline.process as usize] += 1;
            timelines[timeline.process as usize] =
                Some(timeline).filter(|_| counts[timeline.process as usize] == 1);
        }
        SharedCollectives { timelines, known: HashMap::new(), entries_left: MAX_ENTRIES }
    }

    /// Returns the calls of two processes that entered the same collectives, ascending.
    pub(crate) fn between(&mut self, one: u32, other: u32) -> SharedCalls {
        if let Some(known) = self.known.get(&(one, other)) {
            return known.clone();
        }
        let found: SharedCalls = self.find(one, other).unwrap_or_default().into();
        self.known.insert((one, other), found.clone());
        found
    }

    fn find(&mut self, one: u32, other: u32) -> Option<Vec<(u32, u32)>> {
        let timelines = [self.timelines[one as usize]?, self.timelines[other as usize]?];
        let entries = timelines.iter().map(|timeline| timeline.entries.len()).sum();
        self.entries_left = self.entries_left.checked_sub(entries)?;
        let [first, second] = timelines.map(|timeline| {
            let waiting = timeline.entries.iter();
            waiting.filter(|entry| entry.is_blocking && entry.waits == CollectiveWaits::ForAll)
        });
        let numbers: HashMap<(u32, u32, u32), u32> =
            second.map(|entry| ((entry.communicator, entry.number, entry.function), entry.call)).collect();
        let common = first.filter_map(|entry| {
            let of_second = numbers.get(&(entry.communicator, entry.number, entry.function))?;
            Some((entry.call, *of_second))
        });
        let common: Vec<(u32, u32)> = common.collect();
        common.is_sorted_by_key(|(_, call)| *call).then_some(common)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from: u32, to: u32, missing: u32) -> CallGap {
        CallGap { communicator: 0, from, to, missing }
    }

    fn pairs(
        sends: (Vec<u32>, &[CallGap]),
        receives: (Vec<u32>, &[CallGap]),
        collectives: &[(u32, u32)],
    ) -> Vec<(usize, usize)> {
        let [sends, receives] = [sends, receives].map(|(calls, gaps)| ChannelSide::new(calls, gaps));
        let mut pairs = GapMatching::new(sends, receives).pairs(|| collectives.into());
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn ends_before_and_after_a_gap_match() {
        let gaps = [gap(2, 2, 3)];
        let found = pairs(((0..7).collect(), &[]), ((0..5).collect(), &gaps), &[]);
        assert_eq!(found, [(0, 0), (1, 1), (4, 2), (5, 3), (6, 4)]);
        // More ends are missing than the gap has, or the other side has less: a gap that is not known.
        assert_eq!(pairs(((0..9).collect(), &[]), ((0..5).collect(), &gaps), &[]), []);
        assert_eq!(pairs(((0..4).collect(), &[]), ((0..5).collect(), &gaps), &[]), []);
        // None of the missing calls is of this channel.
        assert_eq!(pairs(((0..5).collect(), &[]), ((0..5).collect(), &gaps), &[]).len(), 5);
    }

    #[test]
    fn gaps_of_both_sides_leave_what_is_between() {
        let (of_sends, of_receives) = ([gap(2, 3, 1)], [gap(5, 5, 1)]);
        let found = pairs(((0..7).collect(), &of_sends), ((0..7).collect(), &of_receives), &[]);
        assert_eq!(found, [(0, 0), (1, 1), (5, 5), (6, 6)]);
    }

    #[test]
    fn collectives_divide_what_is_between_gaps() {
        // Ends at the calls 0 to 3, 5 to 8 and 10 to 13; collectives at 4 and 9.
        let calls = || [0u32, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13].to_vec();
        let without = |missing: [usize; 2]| {
            let all = calls();
            (0..all.len())
                .filter(|place| !missing.contains(place))
                .map(|place| all[place])
                .collect::<Vec<u32>>()
        };
        let gaps = [gap(2, 3, 1), gap(11, 12, 1)];
        let collectives = [(4, 4), (9, 9)];
        let found = pairs((calls(), &[]), (without([2, 9]), &gaps), &collectives);
        let matched: Vec<usize> = found.iter().map(|(send, _)| *send).collect();
        assert_eq!(matched, [0, 1, 3, 4, 5, 6, 7, 8, 10, 11]);
        assert!(found.iter().all(|(send, receive)| calls()[*send] == without([2, 9])[*receive]));
        // A message that is sent before a collective and received after it forbids that.
        let late = [0u32, 5, 6, 7, 8, 10, 11, 12, 13].to_vec();
        let gaps = [gap(6, 7, 2), gap(11, 12, 1)];
        let found = pairs((calls(), &[]), (late, &gaps), &collectives);
        assert!(found.len() < 6, "{found:?}");
    }
}
