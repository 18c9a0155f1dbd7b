//! Finds the steps of a run: by ranges that mark them, by collectives or messages that repeat, or windows of time.

use crate::read_options::ReadOptions;
use crate::repeated_messages::repeated_messages;
use crate::repetition::repeated_steps;
use crate::step_ranges::StepRanges;
use rpd_graph::{CallTimeline, JobCalls, LocalDependency};
use std::collections::BTreeSet;
use std::ops::Range;

/// Maximum length of a window, ns.
const MAX_WINDOW_NS: u64 = 1_000_000_000;
/// Minimum length of a window, ns.
const MIN_WINDOW_NS: u64 = 10_000_000;
/// A shorter run has this many windows.
const MIN_WINDOWS: u64 = 20;
/// Every process must call in at least this share of the windows: work counts in the window of the next call.
const MIN_WINDOWS_WITH_CALLS: f64 = 0.8;
/// Maximum number of steps.
const MAX_STEPS: usize = 1 << 20;

/// How steps were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// Each is a range.
    Marker,
    /// Each has the same collectives, or the same messages of each process.
    Repetition,
    /// Each is a part of the run of equal length.
    Windows {
        /// The length, ns.
        ns: u64,
    },
}

/// The steps of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepSource {
    /// Name of the ranges without their numbers, or the function that begins a step; empty for windows.
    pub name: String,
    /// Number of steps.
    pub count: u32,
    /// How they were found.
    pub kind: StepKind,
    /// Place in [`RunDatabase::strings`](rpd_run::RunDatabase::strings) of the name of each range, on the first
    /// process. Empty if all have the same name, or steps are not ranges.
    pub range_names: Vec<u32>,
}

/// Times at which the steps of a process begin, ascending, then the end of the last one.
pub(crate) type StepTimes = Vec<i64>;

/// Finds the steps of a run and stores them in its timelines. `ranges` are those of each timeline that may mark
/// steps, also outside of the window that is read, `name` returns the name of a class of ranges or of the label of a call.
pub(crate) fn find_steps(
    job: &mut JobCalls,
    ranges: &[Vec<StepRanges>],
    options: &ReadOptions,
    class_name: impl Fn(u32) -> String,
    label_name: impl Fn(u32) -> String,
) -> Option<StepSource> {
    let mut range_names = Vec::new();
    let marked = marked_steps(job, ranges, options).map(|(class, names, times)| {
        range_names = names;
        (StepKind::Marker, class_name(class), times)
    });
    let (kind, name, times) = match marked {
        Some(found) => found,
        // If the user named ranges that are not there, other steps would be taken for them.
        None if options.step.is_some() => return None,
        None => {
            let (kind, label, times) = unmarked_steps(job)?;
            (kind, label.map(label_name).unwrap_or_default(), times)
        }
    };
    let count = store_steps(job, times)?;
    if kind == StepKind::Marker {
        follow_launches(job);
    }
    Some(StepSource { name, count, kind, range_names })
}

/// Finds the steps of calls that no ranges mark, by collectives or messages that repeat, or windows of time, and stores them in
/// the timelines. Returns how they were found.
pub fn mark_steps_without_ranges(job: &mut JobCalls) -> Option<StepKind> {
    let (kind, _, times) = unmarked_steps(job)?;
    store_steps(job, times).map(|_| kind)
}

/// Finds steps without ranges: how, the label of the call that begins them, and the steps of each process.
fn unmarked_steps(job: &JobCalls) -> Option<(StepKind, Option<u32>, Vec<StepTimes>)> {
    if let Some((label, times)) = repeated_steps(job).or_else(|| repeated_messages(job)) {
        return Some((StepKind::Repetition, Some(label), times));
    }
    let (ns, times) = windows(job)?;
    Some((StepKind::Windows { ns }, None, times))
}

/// Stores the steps of each process in its timelines. Returns their number.
fn store_steps(job: &mut JobCalls, times: Vec<StepTimes>) -> Option<u32> {
    let count = times.first().map_or(0, |times| times.len().saturating_sub(1));
    if count == 0 || count > MAX_STEPS {
        return None;
    }
    for timeline in &mut job.timelines {
        let times = times.get(timeline.process as usize)?;
        timeline.first_call_of_step = times.iter().map(|time| first_call(timeline, *time)).collect();
    }
    job.steps = count as u32;
    Some(job.steps)
}

/// Lets each step of a stream begin with the work that a thread launched in it. GPU work may run steps later.
fn follow_launches(job: &mut JobCalls) {
    let first_calls = |stream: &CallTimeline| -> Option<Vec<u32>> {
        let is_launch = |found: &&LocalDependency| !job.timelines[found.awaited_timeline as usize].is_stream;
        let launches: Vec<&LocalDependency> = stream.local_dependencies.iter().filter(is_launch).collect();
        let thread = launches.first()?.awaited_timeline;
        let steps = &job.timelines[thread as usize].first_call_of_step;
        let is_ordered = launches.is_sorted_by_key(|found| found.awaited_call);
        if !is_ordered || launches.iter().any(|found| found.awaited_timeline != thread) {
            return None;
        }
        let first = |first: &u32| {
            let before = launches.partition_point(|found| found.awaited_call < *first);
            launches.get(before).map_or(stream.calls.len() as u32, |found| found.call)
        };
        Some(steps.iter().map(first).collect())
    };
    let found: Vec<Option<Vec<u32>>> =
        job.timelines.iter().map(|stream| stream.is_stream.then(|| first_calls(stream)).flatten()).collect();
    for (timeline, first_calls) in job.timelines.iter_mut().zip(found) {
        if let Some(first_calls) = first_calls {
            timeline.first_call_of_step = first_calls;
        }
    }
}

/// Returns the index of the first call that begins at a time or later.
fn first_call(timeline: &CallTimeline, time: i64) -> u32 {
    timeline.calls.partition_point(|call| call.enter_ns < time) as u32
}

/// Steps by ranges: the class of these, their names if they differ, and the steps of each process.
type MarkedSteps = (u32, Vec<u32>, Vec<StepTimes>);

/// Finds the outermost ranges that every process has equally often, up to one, and that cover half of the time of a thread:
/// the others may wait for it outside of theirs.
fn marked_steps(job: &JobCalls, ranges: &[Vec<StepRanges>], options: &ReadOptions) -> Option<MarkedSteps> {
    let is_wanted = options.step.is_some();
    let mut of_process: Vec<Vec<&StepRanges>> = vec![Vec::new(); job.processes as usize];
    let mut covering: BTreeSet<u32> = BTreeSet::new();
    for (timeline, ranges) in job.timelines.iter().zip(ranges) {
        of_process.get_mut(timeline.process as usize)?.extend(ranges);
        let half = timeline.end_ns.abs_diff(timeline.start_ns) / 2;
        covering.extend(ranges.iter().filter(|ranges| ranges.covered >= half).map(|ranges| ranges.class));
    }
    // Of several threads of a process, the one that the ranges cover most.
    let best = |process: &[&'_ StepRanges], class: u32| {
        let of_class = process.iter().enumerate().filter(|(_, ranges)| ranges.class == class);
        of_class.max_by_key(|(_, ranges)| ranges.covered).map(|(place, _)| place)
    };
    let min_count = if is_wanted { 1 } else { JobCalls::MIN_STEPS };
    let everywhere = |class: u32| -> Option<Vec<&StepRanges>> {
        let found: Option<Vec<&StepRanges>> =
            of_process.iter().map(|process| process.get(best(process, class)?).copied()).collect();
        let found = found?;
        let counts = || found.iter().map(|ranges| ranges.spans.len());
        let (min, max) = (counts().min()?, counts().max()?);
        let are_steps = is_wanted || max - min <= 1 && covering.contains(&class);
        (min >= min_count && are_steps).then_some(found)
    };
    let candidates =
        of_process.first()?.iter().filter_map(|ranges| Some((ranges.class, everywhere(ranges.class)?)));
    let (class, found) = candidates.min_by_key(|(class, found)| {
        let depth = found.iter().map(|ranges| ranges.depth).min();
        let covered: u128 = found.iter().map(|ranges| u128::from(ranges.covered)).sum();
        (depth, std::cmp::Reverse(covered), *class)
    })?;
    let whole = whole_steps(&found, options.window_ns)?;
    let times = |ranges: &&StepRanges| {
        let spans = ranges.spans.get(whole.clone())?;
        Some(spans.iter().map(|(start, _)| *start).chain(spans.last().map(|(_, end)| *end)).collect())
    };
    let names = found.first()?.names.get(whole.clone())?.iter();
    let differ = names.clone().any(|name| Some(name) != names.clone().next());
    let names = if differ { names.copied().collect() } else { Vec::new() };
    Some((class, names, found.iter().map(times).collect::<Option<Vec<StepTimes>>>()?))
}

/// Returns which steps are those of all processes, and whole in the window on each.
fn whole_steps(found: &[&StepRanges], window_ns: Option<(i64, i64)>) -> Option<Range<usize>> {
    let count = found.iter().map(|ranges| ranges.spans.len()).min()?;
    let Some((from, to)) = window_ns else { return Some(0..count) };
    let before = |ranges: &&StepRanges| ranges.spans.partition_point(|(start, _)| *start < from);
    let until = |ranges: &&StepRanges| ranges.spans.partition_point(|(_, end)| *end <= to);
    let first = found.iter().map(before).max()?;
    let end = found.iter().map(until).min()?.min(count);
    Some(first..end.max(first))
}

/// Returns windows of equal length for all processes, and this length, ns. `None`, if a process seldom calls.
fn windows(job: &JobCalls) -> Option<(u64, Vec<StepTimes>)> {
    let start = job.timelines.iter().map(|timeline| timeline.start_ns).min()?;
    let end = job.timelines.iter().map(|timeline| timeline.end_ns).max()?;
    let span = end.abs_diff(start);
    let ns = (span / MIN_WINDOWS).clamp(MIN_WINDOW_NS, MAX_WINDOW_NS);
    let count = (span / ns).min(MAX_STEPS as u64);
    if count < JobCalls::MIN_STEPS as u64 {
        return None;
    }
    let mut with_calls = vec![0u64; job.processes as usize];
    for timeline in &job.timelines {
        let window = |call: &rpd_graph::Call| call.enter_ns.abs_diff(start) / ns;
        let windows = timeline.calls.chunk_by(|one, other| window(one) == window(other)).count() as u64;
        let most = with_calls.get_mut(timeline.process as usize)?;
        *most = windows.max(*most);
    }
    if with_calls.iter().any(|windows| (*windows as f64) < count as f64 * MIN_WINDOWS_WITH_CALLS) {
        return None;
    }
    let times: StepTimes = (0..=count).map(|window| start.saturating_add_unsigned(window * ns)).collect();
    Some((ns, vec![times; job.processes as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_graph::Call;

    fn job(calls_ns: &[i64], end_ns: i64) -> JobCalls {
        let call = |enter_ns: &i64| Call { enter_ns: *enter_ns, duration_ns: 1, label: 0 };
        let busy = (0..end_ns).step_by(10_000_000).collect::<Vec<i64>>();
        let timeline = |process, calls: &[i64]| CallTimeline {
            process,
            end_ns,
            calls: calls.iter().map(call).collect(),
            ..CallTimeline::default()
        };
        JobCalls {
            timelines: vec![timeline(0, &busy), timeline(1, calls_ns)],
            processes: 2,
            ..JobCalls::default()
        }
    }

    #[test]
    fn a_short_run_has_shorter_windows_and_a_long_one_windows_of_a_second() {
        let often: Vec<i64> = (0..2_000_000_000).step_by(50_000_000).collect();
        let (ns, times) = windows(&job(&often, 2_000_000_000)).unwrap();
        assert_eq!((ns, times[1].len()), (100_000_000, 21));
        let often: Vec<i64> = (0..60_000_000_000).step_by(500_000_000).collect();
        let (ns, times) = windows(&job(&often, 60_000_000_000)).unwrap();
        assert_eq!((ns, times[0].len()), (1_000_000_000, 61));
        assert!(windows(&job(&[0], 90_000_000)).is_none());
    }

    #[test]
    fn a_process_that_seldom_calls_has_no_windows() {
        assert!(windows(&job(&[0, 1_900_000_000], 2_000_000_000)).is_none());
    }
}
