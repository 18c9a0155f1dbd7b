//! Determines whether calls and roctx ranges are on one clock.
//!
//! rocmProfileData uses `CLOCK_MONOTONIC`. If it is built on rocprofiler-sdk, calls and operations use
//! `CLOCK_BOOTTIME`, and roctx ranges still use MONOTONIC. The clocks differ by the time for which the machine was
//! suspended. On most servers this is 0, and nothing needs to be done. A difference is visible in two ways.
//!
//! * **Crossing**: on one clock, a range of a thread neither begins nor ends inside a HIP or HSA call of the same
//!   thread, because the call occupies the thread. Other rows do not count: Python functions that are recorded as
//!   calls contain ranges.
//! * **Distance**: all ranges of the file are far from all of its calls.
//!
//! The difference cannot be computed from the rows, because ranges need not contain any call. The reader therefore
//! does not estimate it; the caller can pass the difference if it is known.

use std::collections::BTreeMap;

/// Maximum number of rows that are compared per kind and thread.
const MAX_ROWS: usize = 8192;
/// Maximum number of threads that are compared.
const MAX_THREADS: usize = 64;
/// Minimum number of crossings, and number of range ends per required crossing.
const CROSSINGS: (usize, usize) = (3, 50);
/// Minimum distance in ns, and its minimum ratio to the time span of the rows.
const DISTANCE: (i128, i128) = (60_000_000_000, 10);

/// Calls and ranges of a file.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    threads: BTreeMap<(u32, i64), Thread>,
    calls: Option<(i64, i64)>,
    ranges: Option<(i64, i64)>,
}

#[derive(Debug, Default)]
struct Thread {
    calls: Vec<(i64, i64)>,
    ranges: Vec<(i64, i64)>,
}

impl Overlap {
    /// Adds a row.
    pub(super) fn add(&mut self, thread: (u32, i64), is_range: bool, start: i64, end: i64) {
        let all = if is_range { &mut self.ranges } else { &mut self.calls };
        *all = Some(all.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        if self.threads.len() == MAX_THREADS && !self.threads.contains_key(&thread) {
            return;
        }
        let thread = self.threads.entry(thread).or_default();
        let rows = if is_range { &mut thread.ranges } else { &mut thread.calls };
        if rows.len() < MAX_ROWS && start <= end {
            rows.push((start, end));
        }
    }

    /// Returns the evidence that ranges are not on the clock of the calls, if any.
    pub(super) fn mixed(&self) -> Option<String> {
        self.far_apart().or_else(|| self.crossing())
    }

    fn far_apart(&self) -> Option<String> {
        let wide = |(first, last): (i64, i64)| (i128::from(first), i128::from(last));
        let (calls, ranges) = (wide(self.calls?), wide(self.ranges?));
        // BOOTTIME never shows less than MONOTONIC, so calls are never earlier than ranges.
        let distance = calls.0 - ranges.1;
        let taken = (calls.1 - calls.0).max(ranges.1 - ranges.0);
        (distance > DISTANCE.0 && distance > taken.saturating_mul(DISTANCE.1))
            .then(|| format!("all roctx ranges are {} s before all calls", distance / 1_000_000_000))
    }

    fn crossing(&self) -> Option<String> {
        let (mut ends, mut crossings) = (0, 0);
        for Thread { calls, ranges } in self.threads.values() {
            let outermost = outermost(calls.clone());
            for edge in ranges.iter().flat_map(|(start, end)| [*start, *end]) {
                let before = outermost.partition_point(|(start, _)| *start < edge);
                let Some((_, end)) = before.checked_sub(1).and_then(|i| outermost.get(i)) else { continue };
                ends += 1;
                crossings += usize::from(edge < *end);
            }
        }
        let many = crossings >= CROSSINGS.0 && crossings * CROSSINGS.1 >= ends;
        many.then(|| {
            format!("{crossings} of {ends} ends of roctx ranges are inside of a call of the same thread")
        })
    }
}

/// Returns the calls that no other call contains, ordered by start.
fn outermost(mut calls: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    calls.sort_unstable_by_key(|(start, end)| (*start, std::cmp::Reverse(*end)));
    let mut last = i64::MIN;
    calls.retain(|(_, end)| {
        let outer = *end > last;
        last = last.max(*end);
        outer
    });
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates 100 ranges of 1 ms, each with three calls in it. The calls are shifted by `shift` ns.
    fn job(shift: i64) -> Overlap {
        let mut overlap = Overlap::default();
        for i in 0..100 {
            let start = i * 1_100_000;
            overlap.add((1, 7), true, start, start + 1_000_000);
            for call in 0..3 {
                let call = start + 100_000 + call * 300_000 + shift;
                overlap.add((1, 7), false, call, call + 250_000);
            }
        }
        overlap
    }

    #[test]
    fn ranges_around_calls_are_on_one_clock() {
        assert_eq!(job(0).mixed(), None);
    }

    #[test]
    fn ranges_that_end_inside_of_calls_are_not() {
        assert!(job(100_000).mixed().unwrap().contains("inside of a call"));
    }

    #[test]
    fn ranges_hours_before_the_calls_are_not() {
        assert!(job(7_200_000_000_000).mixed().unwrap().contains("7199 s before"));
    }

    #[test]
    fn ranges_before_the_first_call_are_nothing_special() {
        let mut overlap = Overlap::default();
        (0..100).for_each(|i| overlap.add((1, 7), true, i * 10, i * 10 + 9));
        (0..100).for_each(|i| overlap.add((1, 7), false, 5_000 + i * 10, 5_009 + i * 10));
        assert_eq!(overlap.mixed(), None);
    }

    #[test]
    fn times_at_the_ends_of_the_range_are_no_overflow() {
        let mut overlap = Overlap::default();
        overlap.add((1, 7), true, i64::MIN, i64::MIN);
        overlap.add((1, 7), false, i64::MAX, i64::MAX);
        assert!(overlap.mixed().is_some());
    }
}
