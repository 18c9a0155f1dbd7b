//! Ranges of a thread that may mark its steps.

use crate::unit_rows::RegionRow;
use foldhash::fast::RandomState;
use rpd_graph::JobCalls;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Maximum number of classes of ranges of a thread that may mark steps.
const MAX_CANDIDATES: usize = 64;
/// Minimum share of the time of a thread that the ranges of a class cover, if they may mark steps. Of a thread that waits
/// for others outside of its ranges, they may cover little.
const MIN_COVERED: f64 = 0.125;

/// Ranges of one class that cover most of a thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StepRanges {
    /// Class of their names.
    pub(crate) class: u32,
    /// Least number of ranges around one of them.
    pub(crate) depth: usize,
    /// Time that they cover, ns.
    pub(crate) covered: u64,
    /// Start and end of each, in order of time. They do not overlap.
    pub(crate) spans: Vec<(i64, i64)>,
    /// Place of the name of each among the strings.
    pub(crate) names: Vec<u32>,
}

/// A range with the class and the place of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedRange {
    pub(crate) class: u32,
    pub(crate) name: u32,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

#[derive(Clone, Copy, Debug)]
struct ClassSums {
    count: usize,
    covered: u64,
    last_end: i64,
    depth: usize,
}

/// Counts the ranges of a thread by their class, in order of time.
#[derive(Debug, Default)]
pub(crate) struct StepRangeCounter {
    classes: HashMap<u32, ClassSums, RandomState>,
}

impl StepRangeCounter {
    /// Counts a range inside of `depth` others. A range inside of one of its class does not count.
    pub(crate) fn add(&mut self, class: u32, start: i64, end: i64, depth: usize) {
        let new = ClassSums { count: 0, covered: 0, last_end: i64::MIN, depth };
        let sums = self.classes.entry(class).or_insert(new);
        if start >= sums.last_end {
            sums.count += 1;
            sums.covered = sums.covered.saturating_add(end.abs_diff(start));
            sums.last_end = end;
            sums.depth = sums.depth.min(depth);
        }
    }

    /// Returns the classes that may mark steps: `wanted`, or all with enough ranges that cover enough of `span_ns`. `ranges`
    /// are the ranges that were counted.
    pub(crate) fn candidates(
        self,
        wanted: Option<u32>,
        span_ns: u64,
        ranges: impl Iterator<Item = NamedRange>,
    ) -> Vec<StepRanges> {
        let is_candidate = |class: u32, sums: &ClassSums| match wanted {
            Some(wanted) => class == wanted,
            None => sums.count >= JobCalls::MIN_STEPS && sums.covered as f64 >= span_ns as f64 * MIN_COVERED,
        };
        let found = self.classes.iter().filter(|(class, sums)| is_candidate(**class, sums));
        let of = |(class, sums): (&u32, &ClassSums)| StepRanges {
            class: *class,
            depth: sums.depth,
            covered: sums.covered,
            spans: Vec::with_capacity(sums.count),
            names: Vec::with_capacity(sums.count),
        };
        let mut candidates: Vec<StepRanges> = found.map(of).collect();
        candidates.sort_unstable_by_key(|ranges| (ranges.depth, ranges.class));
        candidates.truncate(MAX_CANDIDATES);
        if candidates.is_empty() {
            return candidates;
        }
        for NamedRange { class, name, start, end } in ranges {
            let Some(ranges) = candidates.iter_mut().find(|ranges| ranges.class == class) else { continue };
            if ranges.spans.last().is_none_or(|(_, last_end)| start >= *last_end) {
                ranges.spans.push((start, end));
                ranges.names.push(name);
            }
        }
        candidates
    }
}

/// Limits a region to a window; `None` if it is outside.
pub(crate) fn within(region: &RegionRow, window: Option<(i64, i64)>) -> Option<(i64, i64)> {
    let Some((from, to)) = window else { return Some((region.start, region.end)) };
    let is_inside = from < to && region.start < to && region.end > from;
    is_inside.then(|| (region.start.max(from), region.end.min(to)))
}
