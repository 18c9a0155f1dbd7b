//! Finds steps without marks: the collectives of a process repeat from step to step.

use crate::steps::StepTimes;
use rpd_graph::{CallTimeline, CollectiveEntry, JobCalls};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// Lengths of samples whose periods are tried.
const SAMPLE_LENGTHS: [usize; 4] = [4096, 1024, 256, 64];
/// Cost of a place that does not repeat, in places that do: a stretch is found if at least 95 % repeat.
const MISMATCH_COST: i64 = 19;
/// Maximum number of periods of equal collectives that make one step.
const MAX_JOINED: usize = 16;
/// They make one step if one of them has at least this share of the work of all,
const MIN_WORK_SHARE: f64 = 0.75;
/// and more work than the others in at least this share of the steps.
const MIN_LONGEST_SHARE: f64 = 0.95;

/// Finds the steps of each process, and the label of the call that begins them.
///
/// The period is that of the first process. A step begins at the collective of all processes with the longest
/// median time since the collective before. Its number on the communicator gives the step in all processes.
pub(crate) fn repeated_steps(job: &JobCalls) -> Option<(u32, Vec<StepTimes>)> {
    let timelines: Option<Vec<&CallTimeline>> =
        (0..job.processes).map(|process| collecting_timeline(job, process)).collect();
    let timelines = timelines?;
    let first = timelines.first()?;
    let entries = &first.entries;
    // Calls of one function with different sizes are different parts of a step, unless sizes change from step to step.
    let forms = [true, false].map(|has_sizes| symbols(entries, has_sizes));
    let (symbols, (period, stretch)) =
        forms.into_iter().find_map(|symbols| find_period(&symbols).map(|found| (symbols, found)))?;
    let shared = shared_communicators(job);
    let gap = |place: usize| -> Option<i64> {
        let enter = first.calls.get(entries.get(place)?.call as usize)?.enter_ns;
        Some(enter - exit_before(first, place).unwrap_or(first.start_ns))
    };
    let median_gap = |phase: usize| {
        let mut gaps: Vec<i64> = stretch.clone().skip(phase).step_by(period).filter_map(gap).collect();
        gaps.sort_unstable();
        gaps.get(gaps.len().saturating_sub(1) / 2).copied()
    };
    let is_shared = |phase: &usize| {
        entries.get(stretch.start + phase).is_some_and(|entry| shared.contains(&entry.communicator))
    };
    let phase = (0..period).filter(is_shared).max_by_key(|phase| (median_gap(*phase), Reverse(*phase)))?;
    let starts = beginnings(&symbols, &stretch, period, phase);
    let work_from = |pair: &[usize]| (pair[0]..pair[1]).filter_map(gap).map(|ns| ns.max(0)).sum::<i64>();
    let works: Vec<i64> = starts.windows(2).map(work_from).collect();
    let (joined, first_of_step) = joined_periods(&works);
    let starts: Vec<usize> = starts.into_iter().skip(first_of_step).step_by(joined).collect();
    let starts: Vec<&CollectiveEntry> = starts.iter().filter_map(|place| entries.get(*place)).collect();
    // Beyond the last beginning is the end of the last step.
    if starts.len() <= JobCalls::MIN_STEPS {
        return None;
    }
    let places: Vec<PlacesByNumber> = timelines.iter().map(|timeline| places_by_number(timeline)).collect();
    let starts = &starts[entered_by_all(&starts, &places)?];
    let times = |(timeline, places): (&&CallTimeline, &PlacesByNumber)| -> Option<StepTimes> {
        let begin = |entry: &&CollectiveEntry| {
            let place = *places.get(&(entry.communicator, entry.number))?;
            Some(exit_before(timeline, place).unwrap_or(timeline.start_ns))
        };
        let times: StepTimes = starts.iter().map(begin).collect::<Option<_>>()?;
        times.is_sorted().then_some(times)
    };
    let label = first.calls.get(starts.first()?.call as usize)?.label;
    Some((label, timelines.iter().zip(&places).map(times).collect::<Option<Vec<StepTimes>>>()?))
}

/// Place of each collective of a process, by communicator and number.
type PlacesByNumber = HashMap<(u32, u32), usize>;

fn places_by_number(timeline: &CallTimeline) -> PlacesByNumber {
    let entries = timeline.entries.iter().enumerate();
    entries.map(|(place, entry)| ((entry.communicator, entry.number), place)).collect()
}

/// Returns which beginnings of steps all processes have entered: those of a process that ended early or began late are
/// fewer. `None` if these are too few, or others between them are missing.
fn entered_by_all(starts: &[&CollectiveEntry], places: &[PlacesByNumber]) -> Option<Range<usize>> {
    let is_everywhere = |start: &&CollectiveEntry| {
        places.iter().all(|places| places.contains_key(&(start.communicator, start.number)))
    };
    let first = starts.iter().position(is_everywhere)?;
    let end = starts.iter().rposition(is_everywhere)? + 1;
    let is_whole = starts[first..end].iter().all(is_everywhere);
    (is_whole && end - first > JobCalls::MIN_STEPS).then_some(first..end)
}

/// Returns the places in a stretch at which steps begin. After an exceptional step the others begin at other
/// distances, so a pair of symbols that a period has once counts for more than the distance.
pub(crate) fn beginnings(symbols: &[u32], stretch: &Range<usize>, period: usize, phase: usize) -> Vec<usize> {
    let pair = |place: usize| {
        let before = place.checked_sub(1).and_then(|before| symbols.get(before));
        before.copied().zip(symbols.get(place).copied())
    };
    let model = stretch.start + phase + period;
    let is_once = (model..model + period).filter(|place| pair(*place) == pair(model)).count() == 1;
    match pair(model) {
        // Before the first step is something else.
        Some((_, begin)) if is_once => stretch
            .clone()
            .filter(|place| match *place == stretch.start {
                true => symbols.get(*place) == Some(&begin),
                false => pair(*place) == pair(model),
            })
            .collect(),
        _ => stretch.clone().skip(phase).step_by(period).collect(),
    }
}

/// Returns how many periods make one step, and with which of them the first step begins, by the work in each period. If equal
/// collectives follow one another in a step, the period is shorter than the step, and one of them follows most of the work.
fn joined_periods(works: &[i64]) -> (usize, usize) {
    let all = works.iter().sum::<i64>() as f64;
    let of_length = |length: usize| {
        let steps = works.len() / length;
        let work = |phase: usize| works.iter().skip(phase).step_by(length).sum::<i64>();
        let phase = (0..length).max_by_key(|phase| (work(*phase), Reverse(*phase)))?;
        let is_longest = |step: &&[i64]| step.iter().all(|work| *work <= step[phase]);
        let longest = works.chunks_exact(length).filter(is_longest).count();
        let is_step = steps > JobCalls::MIN_STEPS
            && work(phase) as f64 >= all * MIN_WORK_SHARE
            && longest as f64 >= steps as f64 * MIN_LONGEST_SHARE;
        is_step.then_some((length, phase))
    };
    (2..=MAX_JOINED).find_map(of_length).unwrap_or((1, 0))
}

/// Returns the end of the collective call before an entry.
fn exit_before(timeline: &CallTimeline, place: usize) -> Option<i64> {
    let before = timeline.entries.get(place.checked_sub(1)?)?;
    Some(timeline.calls.get(before.call as usize)?.exit_ns())
}

/// Returns the timeline of a process with most collectives.
fn collecting_timeline(job: &JobCalls, process: u32) -> Option<&CallTimeline> {
    let of_process = job.timelines.iter().filter(|timeline| timeline.process == process);
    of_process.max_by_key(|timeline| timeline.entries.len()).filter(|timeline| !timeline.entries.is_empty())
}

/// Returns the communicators that have all processes as members.
fn shared_communicators(job: &JobCalls) -> HashSet<u32> {
    let has_all = |groups: &[Vec<u32>]| {
        let known: BTreeSet<u32> =
            groups.iter().flatten().copied().filter(|process| *process < job.processes).collect();
        known.len() == job.processes as usize
    };
    let numbered = (0u32..).zip(&job.communicators);
    numbered.filter(|(_, members)| has_all(&members.groups)).map(|(number, _)| number).collect()
}

/// Returns a number for each entry; equal numbers mean the same function, communicator, root and, with `has_sizes`, class
/// of size.
fn symbols(entries: &[CollectiveEntry], has_sizes: bool) -> Vec<u32> {
    let mut known = HashMap::new();
    let mut symbol = |entry: &CollectiveEntry| {
        let next = known.len() as u32;
        let size_class = if has_sizes { entry.size_class } else { 0 };
        *known.entry((entry.communicator, entry.function, entry.root, size_class)).or_insert(next)
    };
    entries.iter().map(&mut symbol).collect()
}

/// Returns the smallest period of a sequence, and the longest stretch in which 95 % of the places have the same
/// symbol one period later. The stretch is at least half of the sequence.
pub(crate) fn find_period(symbols: &[u32]) -> Option<(usize, Range<usize>)> {
    let middle = |length: usize| {
        let start = (symbols.len() - length) / 2;
        smallest_period(&symbols[start..start + length])
    };
    let lengths = SAMPLE_LENGTHS.into_iter().filter(|length| *length <= symbols.len());
    let lengths = lengths.chain(Some(symbols.len() / 2).filter(|length| *length < SAMPLE_LENGTHS[3]));
    let periods: BTreeSet<usize> = lengths.filter_map(middle).collect();
    periods.into_iter().find_map(|period| {
        let stretch = repeating_stretch(symbols, period)?;
        let is_long = stretch.len() >= symbols.len() / 2 && stretch.len() / period > JobCalls::MIN_STEPS;
        is_long.then_some((period, stretch))
    })
}

/// Returns the smallest period of a sequence that has at least two of them.
fn smallest_period(symbols: &[u32]) -> Option<usize> {
    // borders[i]: length of the longest proper prefix of the first i + 1 symbols that is also their suffix.
    let mut borders = vec![0usize; symbols.len()];
    for i in 1..symbols.len() {
        let mut border = borders[i - 1];
        while border > 0 && symbols[i] != symbols[border] {
            border = borders[border - 1];
        }
        borders[i] = border + usize::from(symbols[i] == symbols[border]);
    }
    let period = symbols.len() - borders.last()?;
    (period * 2 <= symbols.len()).then_some(period)
}

/// Returns the stretch in which symbols repeat after a period, with most places that do.
fn repeating_stretch(symbols: &[u32], period: usize) -> Option<Range<usize>> {
    let (mut best, mut sum, mut start) = ((0i64, 0..0), 0i64, 0);
    for place in 0..symbols.len().checked_sub(period)? {
        if sum <= 0 {
            (sum, start) = (0, place);
        }
        sum += if symbols[place] == symbols[place + period] { 1 } else { -MISMATCH_COST };
        if sum > best.0 {
            best = (sum, start..place + 1 + period);
        }
    }
    (best.0 > 0).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{StepKind, mark_steps_without_ranges};
    use rpd_graph::{Call, CollectiveWaits, CommunicatorMembers};

    /// A sequence of numbers that looks like chance.
    struct PseudoRandomNumbers(u64);

    impl PseudoRandomNumbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    /// A job of three processes that call collectives on one communicator: each by its function, after this work in ns,
    /// which differs by up to a tenth between them.
    fn job(collectives: &[(u32, u64)], chance: &mut PseudoRandomNumbers) -> JobCalls {
        let mut timelines = vec![CallTimeline::default(); 3];
        let mut now = [0i64; 3];
        for (number, (function, work)) in (0u32..).zip(collectives) {
            now = now.map(|exit| exit + (work - chance.below(work / 10 + 1)) as i64);
            let exit = now.into_iter().max().unwrap() + 1_000;
            for (timeline, enter_ns) in timelines.iter_mut().zip(now) {
                let duration_ns = exit.abs_diff(enter_ns);
                timeline.calls.push(Call { enter_ns, duration_ns, label: *function });
                timeline.entries.push(CollectiveEntry {
                    call: number,
                    communicator: 0,
                    number,
                    function: *function,
                    root: -1,
                    waits: CollectiveWaits::ForAll,
                    is_blocking: true,
                    size_class: 0,
                    is_size_shared: false,
                });
            }
            now = [exit; 3];
        }
        for (process, timeline) in (0u32..).zip(&mut timelines) {
            (timeline.process, timeline.end_ns) = (process, now[0]);
        }
        let communicators = vec![CommunicatorMembers { groups: vec![vec![0, 1, 2]] }];
        JobCalls { timelines, communicators, processes: 3, labels: 16, ..JobCalls::default() }
    }

    /// Functions of a step, which do not repeat within it.
    fn functions_of_step(length: usize, chance: &mut PseudoRandomNumbers) -> Vec<u32> {
        loop {
            let step: Vec<u32> = (0..length).map(|_| chance.below(4) as u32).collect();
            let repeats = |part: usize| (0..length).all(|place| step[place] == step[(place + part) % length]);
            if (1..length).all(|part| !repeats(part)) {
                return step;
            }
        }
    }

    #[test]
    fn planted_steps_are_found_with_every_seed() {
        for seed in 0..20 {
            let chance = &mut PseudoRandomNumbers(seed);
            let step = functions_of_step(1 + chance.below(9) as usize, chance);
            let (before, steps, after) =
                (chance.below(7) as usize, 30 + chance.below(50) as usize, chance.below(4));
            let mut collectives: Vec<(u32, u64)> =
                (0..before).map(|place| (7 + place as u32 % 2, 300_000)).collect();
            for _ in 0..steps {
                let work =
                    |place: usize| if place == 0 { 5_000_000 } else { 200_000 + chance.below(800_000) };
                collectives.extend(step.iter().copied().zip((0..step.len()).map(work)));
            }
            collectives.extend((0..after).map(|_| (9, 400_000)));
            let job = job(&collectives, chance);
            let (label, found) = repeated_steps(&job).unwrap_or_else(|| panic!("seed {seed}: {step:?}"));
            assert_eq!(label, step[0], "seed {seed}");
            for (timeline, times) in job.timelines.iter().zip(found) {
                let begins = (0..steps).map(|number| before + number * step.len());
                let begins: Vec<i64> =
                    begins.map(|place| exit_before(timeline, place).unwrap_or(timeline.start_ns)).collect();
                assert!(begins.windows(times.len()).any(|planted| planted == times), "seed {seed}: {step:?}");
                assert!(times.len() + 1 >= steps, "seed {seed}: {} of {steps} steps", times.len());
            }
        }
    }

    #[test]
    fn calls_of_one_function_with_different_sizes_are_parts_of_a_step() {
        let chance = &mut PseudoRandomNumbers(1);
        let collectives: Vec<(u32, u64)> =
            (0..90).map(|place| (0, if place % 3 == 0 { 5_000_000 } else { 300_000 })).collect();
        let mut job = job(&collectives, chance);
        let without_sizes = repeated_steps(&job).unwrap().1;
        assert_eq!(without_sizes[0].len(), 30, "a step begins with most of its work");
        let of_work = |work: [u64; 3]| -> usize {
            let collectives: Vec<(u32, u64)> = (0..90).map(|place| (0, work[place % 3])).collect();
            repeated_steps(&self::job(&collectives, &mut PseudoRandomNumbers(1))).unwrap().1[0].len()
        };
        assert_eq!(of_work([1_000_000, 900_000, 800_000]), 90, "equal parts are steps of their own");
        assert_eq!(of_work([2_000_000, 1_000_000, 1_000_000]), 90, "as are those of which none has most");
        for entry in job.timelines.iter_mut().flat_map(|timeline| &mut timeline.entries) {
            entry.size_class = CollectiveEntry::size_class([8, 65_536, 1 << 20][entry.number as usize % 3]);
        }
        let found = repeated_steps(&job).unwrap().1;
        assert_eq!(found[0].len(), 30);
        // Sizes that change from step to step tell nothing.
        for entry in job.timelines.iter_mut().flat_map(|timeline| &mut timeline.entries) {
            entry.size_class = (entry.number * entry.number % 31) as u8;
        }
        assert_eq!(repeated_steps(&job).unwrap().1, without_sizes);
    }

    #[test]
    fn steps_are_those_that_all_processes_have() {
        let chance = &mut PseudoRandomNumbers(2);
        let mut whole = job(&vec![(0, 1_000_000); 40], chance);
        let all = repeated_steps(&whole).unwrap().1;
        whole.timelines[1].entries.truncate(38);
        whole.timelines[2].entries.remove(0);
        let cut = repeated_steps(&whole).unwrap().1;
        assert_eq!((cut[0].as_slice(), cut[1].as_slice()), (&all[0][1..38], &all[1][1..38]));
        assert_eq!(cut[2][1..], all[2][2..38]);
        // A hole is no end.
        whole.timelines[1].entries.remove(20);
        assert!(repeated_steps(&whole).is_none());
    }

    #[test]
    fn collectives_that_do_not_repeat_give_windows() {
        for seed in 0..20 {
            let chance = &mut PseudoRandomNumbers(100 + seed);
            let collectives: Vec<(u32, u64)> =
                (0..300).map(|_| (chance.below(12) as u32, 500_000 + chance.below(1_000_000))).collect();
            let mut job = job(&collectives, chance);
            let kind = mark_steps_without_ranges(&mut job);
            assert!(matches!(kind, Some(StepKind::Windows { .. })), "seed {seed}: {kind:?}");
        }
    }

    #[test]
    fn periods_are_found_with_a_start_and_exceptions() {
        let steps = (0..200).flat_map(|step| if step == 150 { vec![1, 2, 9, 3] } else { vec![1, 2, 3] });
        let symbols: Vec<u32> = [7, 8, 7].into_iter().chain(steps).collect();
        let (period, stretch) = find_period(&symbols).unwrap();
        assert_eq!((period, stretch.start), (3, 3));
        assert!(stretch.len() > 440, "{stretch:?}");
        let starts = beginnings(&symbols, &stretch, period, 1);
        assert!(starts.iter().all(|place| symbols[*place] == 2));
        assert!(starts.len() >= 199, "{}", starts.len());
        assert_eq!(find_period(&[1; 300]), Some((1, 0..300)));
        assert_eq!(find_period(&(0..500).collect::<Vec<_>>()), None);
        assert_eq!([find_period(&[]), find_period(&[1]), find_period(&[1; 9])], [None, None, None]);
    }
}
