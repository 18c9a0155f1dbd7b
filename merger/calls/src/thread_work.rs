//! Divides the time of a thread between its calls by the innermost range.

use crate::labels::{LabelKey, LabelNumbers, WorkBorder};
use crate::python_samples::{StackSample, WorkSample};
use rpd_graph::WorkSegment;

/// Maximum depth of nested ranges; time in deeper ones counts for the one at this depth.
const MAX_DEPTH: usize = 256;

/// A range that is open.
#[derive(Clone, Copy, Debug)]
struct OpenRange {
    end: i64,
    label: u32,
    /// Whether the range counts among those of its label already: it had time of its own.
    is_counted: bool,
}

/// Work since the last call under a label.
#[derive(Clone, Copy, Debug)]
struct GapWork {
    /// Label; `None` for time in no range.
    label: Option<u32>,
    ns: u64,
    /// Number of ranges of which this is the first own time.
    ranges: u32,
}

/// Collects work segments while time advances over a thread.
///
/// ```text
/// range A  [---------------------]
/// range B       [------]
/// calls            [======]    [==]
/// work     A    B         A        A   : of each gap, the sum of each label
/// ```
#[derive(Debug)]
pub(crate) struct ThreadWork<'a> {
    now: i64,
    open: Vec<OpenRange>,
    gap: Vec<GapWork>,
    /// For each label the last gap in which it occurred, and its place there.
    places: Vec<(u32, u32)>,
    gaps: u32,
    before: Option<WorkBorder>,
    /// Segments before each call, and after the last one.
    pub(crate) work: Vec<WorkSegment>,
    /// Number of ranges that began with the time in each segment.
    pub(crate) ranges: Vec<u32>,
    /// Index of the first segment of each gap.
    pub(crate) first_work: Vec<u32>,
    /// Samples that are not passed yet, by time.
    samples: &'a [StackSample],
    /// Samples since the last call, with labels as those of `gap`.
    gap_samples: Vec<(Option<u32>, StackSample)>,
    /// Samples in work.
    pub(crate) work_samples: Vec<WorkSample>,
}

impl<'a> ThreadWork<'a> {
    /// Starts at a time. `samples`, by time, are those of the thread.
    pub(crate) fn new(start: i64, samples: &'a [StackSample]) -> ThreadWork<'a> {
        ThreadWork {
            now: start,
            open: Vec::new(),
            gap: Vec::new(),
            places: Vec::new(),
            gaps: 1,
            before: None,
            work: Vec::new(),
            ranges: Vec::new(),
            first_work: Vec::new(),
            samples,
            gap_samples: Vec::new(),
            work_samples: Vec::new(),
        }
    }

    /// Advances to a time and returns the number of ranges that are open then.
    pub(crate) fn depth_at(&mut self, time: i64) -> usize {
        self.advance(time);
        self.close_ended(time);
        self.open.len()
    }

    /// Removes innermost ranges that ended before a time, which must not be after the time that was counted.
    fn close_ended(&mut self, time: i64) {
        while self.open.last().is_some_and(|range| range.end <= time) {
            self.open.pop();
        }
    }

    /// Begins a range. Ranges begin in order of time.
    pub(crate) fn open(&mut self, start: i64, end: i64, label: u32) {
        self.advance(start);
        if self.open.len() >= MAX_DEPTH {
            self.open.retain(|range| range.end > start);
        }
        if self.open.len() < MAX_DEPTH {
            self.open.push(OpenRange { end, label, is_counted: false });
        }
    }

    /// Ends the gap at a call.
    pub(crate) fn call(&mut self, enter: i64, exit: i64, border: WorkBorder, labels: &mut LabelNumbers) {
        self.advance(enter);
        self.end_gap(Some(border), labels);
        self.now = self.now.max(exit);
        self.before = Some(border);
    }

    /// Extends the last call.
    pub(crate) fn extend_call(&mut self, exit: i64, border: WorkBorder) {
        self.gap.clear();
        self.gap_samples.clear();
        self.gaps += 1;
        self.now = self.now.max(exit);
        self.before = Some(border);
    }

    /// Ends the last gap at the end of the thread.
    pub(crate) fn finish(&mut self, end: i64, labels: &mut LabelNumbers) {
        self.advance(end);
        self.end_gap(None, labels);
        self.first_work.push(self.work.len() as u32);
    }

    /// Counts the time until `to` for the ranges that are open in it. Time that has passed counts once.
    pub(crate) fn advance(&mut self, to: i64) {
        while self.now < to {
            self.close_ended(self.now);
            let (label, stop, is_first) = match self.open.last_mut() {
                Some(range) => {
                    let is_counted = std::mem::replace(&mut range.is_counted, true);
                    (Some(range.label), to.min(range.end), !is_counted)
                }
                None => (None, to, false),
            };
            self.add(GapWork { label, ns: stop.abs_diff(self.now), ranges: u32::from(is_first) });
            self.pass_samples(label, stop);
            self.now = stop;
        }
    }

    /// Passes the samples before `stop`. Those from now on are in work with this label, and earlier ones in a call.
    fn pass_samples(&mut self, label: Option<u32>, stop: i64) {
        while let Some((sample, later)) = self.samples.split_first()
            && sample.time_ns < stop
        {
            self.samples = later;
            if sample.time_ns >= self.now {
                self.gap_samples.push((label, *sample));
            }
        }
    }

    fn add(&mut self, work: GapWork) {
        let number = work.label.map_or(0, |label| label as usize + 1);
        if self.places.len() <= number {
            self.places.resize(number + 1, (0, 0));
        }
        let (gap, place) = self.places[number];
        match self.gap.get_mut(place as usize) {
            Some(sum) if gap == self.gaps => {
                sum.ns = sum.ns.saturating_add(work.ns);
                sum.ranges = sum.ranges.saturating_add(work.ranges);
            }
            _ => {
                self.places[number] = (self.gaps, self.gap.len() as u32);
                self.gap.push(work);
            }
        }
    }

    fn end_gap(&mut self, after: Option<WorkBorder>, labels: &mut LabelNumbers) {
        self.first_work.push(self.work.len() as u32);
        let between = LabelKey::Between(self.before, after);
        for GapWork { label, ns, ranges } in self.gap.drain(..) {
            let label = label.unwrap_or_else(|| labels.number(between));
            self.work.push(WorkSegment { label, ns });
            self.ranges.push(ranges);
        }
        for (label, StackSample { time_ns, stack, period_ms }) in self.gap_samples.drain(..) {
            let label = label.unwrap_or_else(|| labels.number(between));
            self.work_samples.push(WorkSample { time_ns, stack, label, weight: period_ms });
        }
        self.gaps = self.gaps.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn border(function: u16) -> WorkBorder {
        WorkBorder { function, is_of_part: false }
    }

    fn texts(work: &ThreadWork<'_>, labels: &LabelNumbers) -> Vec<(LabelKey, u64)> {
        work.work.iter().map(|segment| (labels.keys()[segment.label as usize], segment.ns)).collect()
    }

    #[test]
    fn time_belongs_to_the_innermost_range() {
        let mut labels = LabelNumbers::default();
        let [a, b] = [LabelKey::Name(1), LabelKey::Name(2)];
        let numbers = [a, b].map(|key| labels.number(key));
        let mut work = ThreadWork::new(0, &[]);
        work.open(10, 100, numbers[0]);
        work.open(20, 50, numbers[1]);
        work.call(30, 60, border(7), &mut labels);
        work.open(70, 80, numbers[1]);
        work.call(110, 111, border(8), &mut labels);
        work.finish(111, &mut labels);
        let first = [(LabelKey::Between(None, Some(border(7))), 10), (a, 10), (b, 10)];
        let second = [(a, 30), (b, 10), (LabelKey::Between(Some(border(7)), Some(border(8))), 10)];
        assert_eq!(texts(&work, &labels), [first, second].concat());
        assert_eq!(work.first_work, [0, 3, 6, 6]);
    }

    #[test]
    fn a_sample_has_the_label_of_the_time_in_which_it_is() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..200 {
            // A sample in each ns, so that each label has as many samples in a gap as it has ns of work.
            let samples: Vec<StackSample> =
                (-5..400).map(|time_ns| StackSample { time_ns, stack: 0, period_ms: 1.0 }).collect();
            let mut labels = LabelNumbers::default();
            let mut work = ThreadWork::new(0, &samples);
            let mut at = 0;
            for _ in 0..20 {
                at += next(8) as i64;
                match next(4) {
                    0 => {
                        let exit = at + next(12) as i64;
                        work.call(at, exit, border(next(2) as u16), &mut labels);
                        at = exit;
                    }
                    1 => work.extend_call(at, border(7)),
                    _ => {
                        let label = labels.number(LabelKey::Name(next(3) as u32));
                        work.depth_at(at);
                        work.open(at, at + 1 + next(40) as i64, label);
                    }
                }
            }
            work.finish(at + 5, &mut labels);
            let mut sums = vec![0u64; labels.keys().len()];
            work.work.iter().for_each(|segment| sums[segment.label as usize] += segment.ns);
            let mut counts = vec![0u64; labels.keys().len()];
            work.work_samples.iter().for_each(|sample| counts[sample.label as usize] += 1);
            assert_eq!(counts, sums);
            assert!(work.work_samples.is_sorted_by_key(|sample| sample.time_ns));
        }
    }

    #[test]
    fn a_range_counts_once_where_its_own_time_begins() {
        let mut labels = LabelNumbers::default();
        let [outer, inner] = [LabelKey::Name(1), LabelKey::Name(2)].map(|key| labels.number(key));
        let mut work = ThreadWork::new(0, &[]);
        // The outer range has no time of its own before its first call.
        work.open(0, 100, outer);
        for (start, end) in [(0, 10), (10, 20), (20, 50)] {
            work.open(start, end, inner);
        }
        work.call(30, 40, border(7), &mut labels);
        work.call(60, 61, border(7), &mut labels);
        work.open(70, 80, inner);
        work.finish(100, &mut labels);
        let found: Vec<(u32, u32)> =
            work.work.iter().zip(&work.ranges).map(|(of, n)| (of.label, *n)).collect();
        assert_eq!(found, [(inner, 3), (inner, 0), (outer, 1), (outer, 0), (inner, 1)]);
        assert_eq!(work.first_work, [0, 1, 3, 5]);
    }

    #[test]
    fn ranges_that_are_not_nested_and_very_deep_ones_end_nothing() {
        let mut labels = LabelNumbers::default();
        let numbers: Vec<u32> = (0..3).map(|name| labels.number(LabelKey::Name(name))).collect();
        let mut work = ThreadWork::new(0, &[]);
        work.open(0, 10, numbers[0]);
        work.open(5, 20, numbers[1]);
        work.finish(30, &mut labels);
        let expected = [(LabelKey::Name(0), 5), (LabelKey::Name(1), 15), (LabelKey::Between(None, None), 10)];
        assert_eq!(texts(&work, &labels), expected);

        let mut work = ThreadWork::new(0, &[]);
        (0..1000).for_each(|start| work.open(start, 2000 - start, numbers[2]));
        assert_eq!(work.open.len(), MAX_DEPTH);
        work.finish(2000, &mut labels);
        assert_eq!(texts(&work, &labels), [(LabelKey::Name(2), 2000)]);
    }
}
