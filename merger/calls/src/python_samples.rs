//! Call stacks of Python that collectors sample of each thread.

use crate::id_index::IdIndex;
use crate::python_stacks::{MAX_FRAMES, NO_STACK, PythonFrame, PythonStacks, StackLimits, StackTreeBuilder};
use crate::unit_rows::{NO_CALL, RegionRow};
use rpd_console::Failure;
use rpd_run::{RowUnit, RunDatabase, UnitNames, is_row_time};
use rpd_shard::model::{IntColumn, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use twox_hash::XxHash3_128;

/// Name of the tracks of samples.
const TRACK: &[u8] = b"Python stack";
/// Maximum number of samples of a thread that are kept.
pub(crate) const MAX_SAMPLES: usize = 1 << 16;
/// Maximum number of samples of a run that are kept, if each process has one thread with some.
const MAX_RUN_SAMPLES: usize = 1 << 22;
/// Number of samples of a thread that are kept in a run of any size.
const MIN_SAMPLES: usize = 64;
/// Maximum sizes of the stacks of a unit.
const UNIT_LIMITS: StackLimits = StackLimits { nodes: 1 << 18, text_bytes: 1 << 24 };
/// Maximum length of a stack's text, bytes.
const MAX_STACK_BYTES: usize = 1 << 18;
/// Maximum length of the text that states a period, bytes.
const MAX_PERIOD_BYTES: usize = 1024;
/// Minimum and maximum time between two samples, ms.
const PERIODS_MS: (f32, f32) = (0.01, 60_000.0);

/// A sample of a thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct StackSample {
    /// When it was taken, ns in job time.
    pub(crate) time_ns: i64,
    /// Number of the stack in the unit, or [`NO_STACK`].
    pub(crate) stack: u32,
    /// Time that it stands for, ms; the same for all samples, if it is not known.
    pub(crate) period_ms: f32,
}

/// A sample of a thread during its work.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorkSample {
    /// When it was taken, ns in job time.
    pub time_ns: i64,
    /// Number of the stack in [`PythonStacks`]; of none, if the thread ran no function of Python.
    pub stack: u32,
    /// Label of the work.
    pub label: u32,
    /// Time that it stands for, relative to other samples of the thread.
    pub weight: f32,
}

impl WorkSample {
    /// Returns whether the weight is one that a sample can have.
    pub(crate) fn has_valid_weight(&self) -> bool {
        (PERIODS_MS.0..=PERIODS_MS.1).contains(&self.weight)
    }
}

/// The samples of a run during work.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PythonSamples {
    /// The stacks of all threads.
    pub stacks: PythonStacks,
    /// Samples of each thread, by timeline and time; empty if there are none.
    pub samples: Vec<Vec<WorkSample>>,
}

impl PythonSamples {
    /// Returns whether no thread has samples.
    pub fn is_empty(&self) -> bool {
        self.samples.iter().all(Vec::is_empty)
    }

    /// Returns how many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let samples: usize = self.samples.iter().map(|samples| size_of_val(&samples[..])).sum();
        self.stacks.bytes().saturating_add(samples as u64)
    }
}

/// The samples of a unit.
#[derive(Debug, Default)]
pub(crate) struct UnitSamples {
    pub(crate) stacks: PythonStacks,
    /// Samples of each thread by time, by the key of the thread.
    pub(crate) threads: BTreeMap<i64, Vec<StackSample>>,
}

/// Reads the samples of the threads with calls. Of a window only those in it are kept.
pub(crate) fn read_python_samples(
    run: &RunDatabase,
    unit: &RowUnit,
    names: &UnitNames,
    regions: &[RegionRow],
    window: Option<(i64, i64)>,
) -> Result<UnitSamples, Failure> {
    let is_python = |name: Option<i64>| {
        name.and_then(|id| run.strings.place(id)).is_some_and(|place| run.strings.at(place) == TRACK)
    };
    let threads: Vec<Option<i64>> =
        names.tracks.iter().map(|track| track.thread.filter(|_| is_python(track.name))).collect();
    if threads.iter().all(Option::is_none) {
        return Ok(UnitSamples::default());
    }
    let calling: BTreeSet<i64> =
        regions.iter().filter(|region| region.call != NO_CALL).map(|region| region.thread).collect();
    let sampled = threads.iter().flatten().filter(|thread| calling.contains(thread));
    let sampled: BTreeSet<i64> = sampled.copied().collect();
    let limit = max_samples(run.processes.len(), sampled.len());
    let mut kept: BTreeMap<i64, ThinnedSamples> =
        sampled.into_iter().map(|thread| (thread, ThinnedSamples::new(limit))).collect();
    let mut events = (i64::MAX, i64::MIN);
    let ids = unit.ids(rocpd::SAMPLE);
    let pieces = run.tables.pieces_with(rocpd::SAMPLE, ids)?;
    let wanted = &["track_id", "timestamp", "event_id"];
    run.tables.read_pieces(rocpd::SAMPLE, &pieces, ids, wanted, &mut |_, rows, places| {
        let [tracks, times, event_ids] = wanted.map(|column| IntColumn::of(rows.column(column)));
        for i in places {
            let thread = names.tracks.place(tracks.at(i)).and_then(|place| *threads.get(place as usize)?);
            let (Some(thread), Some(event)) = (thread, event_ids.at(i)) else { continue };
            // Samples of other threads may state the period.
            events = (events.0.min(event), events.1.max(event));
            let is_kept =
                |time: &i64| is_row_time(*time) && window.is_none_or(|(from, to)| (from..to).contains(time));
            if let (Some(time), Some(samples)) = (times.at(i).filter(is_kept), kept.get_mut(&thread)) {
                samples.push(time, event);
            }
        }
        Ok(())
    })?;
    read_stacks(run, unit, kept, events)
}

/// Returns how many samples of a thread are kept in a run of so many processes, in a unit of so many threads.
fn max_samples(processes: usize, threads: usize) -> usize {
    (MAX_RUN_SAMPLES / processes.max(1)).min(MAX_SAMPLES * 8 / threads.max(1)).clamp(MIN_SAMPLES, MAX_SAMPLES)
}

/// Reads the events of samples, which are in the range `events`.
fn read_stacks(
    run: &RunDatabase,
    unit: &RowUnit,
    kept: BTreeMap<i64, ThinnedSamples>,
    events: (i64, i64),
) -> Result<UnitSamples, Failure> {
    let samples = kept.values().flat_map(|samples| &samples.kept);
    let index: Vec<(i64, u32)> = samples.zip(0..).map(|((_, event), row)| (*event, row)).collect();
    // A sample without a usable event has no stack.
    let mut found: Vec<Option<(u32, f32)>> = vec![None; index.len()];
    let index = IdIndex::of_rows(&index);
    let mut texts = StackTexts::new();
    let mut periods = SamplePeriods::default();
    let ids = unit.ids(rocpd::EVENT).within(events.0, events.1);
    let pieces = run.tables.unjoined_pieces(rocpd::EVENT, &ids)?;
    let wanted = &["call_stack", "extdata"];
    run.tables.read_pieces(rocpd::EVENT, &pieces, &ids, wanted, &mut |_, rows, places| {
        let [stacks, extdata] = wanted.map(|column| rows.column(column));
        for i in places {
            if let Value::Text(text) = extdata.get(i) {
                periods.read(text);
            }
            let row = index.row(rows.keys.get(i)).and_then(|row| found.get_mut(row));
            if let (Some(row), Value::Text(text)) = (row, stacks.get(i)) {
                *row = texts.stack(text).map(|stack| (stack, periods.current));
            }
        }
        Ok(())
    })?;
    let mut rows = found.into_iter();
    let mut threads = BTreeMap::new();
    for (thread, ThinnedSamples { kept, .. }) in kept {
        let of_thread = kept.into_iter().zip(rows.by_ref());
        let mut samples: Vec<StackSample> = of_thread
            .filter_map(|((time_ns, _), found)| {
                let (stack, period_ms) = found?;
                let period_ms = if period_ms > 0.0 { period_ms } else { periods.first.unwrap_or(1.0) };
                Some(StackSample { time_ns, stack, period_ms })
            })
            .collect();
        samples.sort_by_key(|sample| sample.time_ns);
        if !samples.is_empty() {
            threads.insert(thread, samples);
        }
    }
    Ok(UnitSamples { stacks: texts.builder.finish(), threads })
}

/// Time and event of samples. If there are too many, every second, fourth, eighth one and so on is kept, so that shares
/// stay as they are.
#[derive(Debug)]
struct ThinnedSamples {
    kept: Vec<(i64, i64)>,
    limit: usize,
    seen: u64,
    /// Logarithm to the base 2 of the number of samples of which one is kept.
    halvings: u32,
}

impl ThinnedSamples {
    fn new(limit: usize) -> ThinnedSamples {
        ThinnedSamples { kept: Vec::new(), limit, seen: 0, halvings: 0 }
    }

    fn push(&mut self, time_ns: i64, event: i64) {
        let is_kept = |halvings: u32, seen: u64| seen.trailing_zeros() >= halvings;
        if is_kept(self.halvings, self.seen) && self.kept.len() >= self.limit {
            self.halvings += 1;
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
        if is_kept(self.halvings, self.seen) {
            self.kept.push((time_ns, event));
        }
        self.seen += 1;
    }
}

/// The time between samples, which events state where it changes.
#[derive(Debug, Default)]
struct SamplePeriods {
    /// The first one.
    first: Option<f32>,
    /// The last one, ms; 0 if none was stated.
    current: f32,
}

#[derive(Deserialize)]
struct StatedPeriod {
    rpd: PeriodMember,
}

#[derive(Deserialize)]
struct PeriodMember {
    period_ms: f32,
}

impl SamplePeriods {
    /// Reads the period in the extdata of an event, if there is one.
    fn read(&mut self, text: &[u8]) {
        let has_one = |text: &[u8]| text.windows(9).any(|part| part == b"period_ms");
        if !(9..MAX_PERIOD_BYTES).contains(&text.len()) || !has_one(text) {
            return;
        }
        let Ok(stated) = serde_json::from_slice::<StatedPeriod>(text) else { return };
        let period = stated.rpd.period_ms;
        if (PERIODS_MS.0..=PERIODS_MS.1).contains(&period) {
            self.current = period;
            self.first.get_or_insert(period);
        }
    }
}

/// A stack, the innermost frame first.
#[derive(Deserialize)]
struct StoredStack<'a> {
    #[serde(borrow)]
    frames: Vec<StoredFrame<'a>>,
}

#[derive(Deserialize)]
struct StoredFrame<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    file: Cow<'a, str>,
    line: Option<u32>,
}

/// Numbers of stacks by the hash of their texts: most samples have a text that another one has as well.
struct StackTexts {
    builder: StackTreeBuilder,
    known: HashMap<u128, Option<u32>>,
}

impl StackTexts {
    fn new() -> StackTexts {
        StackTexts { builder: StackTreeBuilder::new(UNIT_LIMITS), known: HashMap::new() }
    }

    /// Returns the number of a stack; [`NO_STACK`] if it has no frames or there are too many, `None` if the text is no
    /// stack.
    fn stack(&mut self, text: &[u8]) -> Option<u32> {
        let builder = &mut self.builder;
        *self.known.entry(XxHash3_128::oneshot(text)).or_insert_with(|| parse_stack(builder, text))
    }
}

fn parse_stack(builder: &mut StackTreeBuilder, text: &[u8]) -> Option<u32> {
    if text.len() > MAX_STACK_BYTES {
        return None;
    }
    let StoredStack { mut frames } = serde_json::from_slice(text).ok()?;
    frames.truncate(MAX_FRAMES);
    let number = frames.iter().rev().try_fold(NO_STACK, |caller, frame| {
        let function = builder.function(&frame.name, &frame.file)?;
        builder.stack(caller, PythonFrame { function, line: frame.line.unwrap_or(0) })
    });
    Some(number.unwrap_or(NO_STACK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_thinned_out_evenly() {
        let mut samples = ThinnedSamples::new(100);
        for number in 0..1000 {
            samples.push(number * 10, number);
            assert!(samples.kept.len() <= 100);
        }
        let events: Vec<i64> = samples.kept.iter().map(|(_, event)| *event).collect();
        let expected: Vec<i64> = (0..1000).step_by(16).collect();
        assert_eq!(events, expected);
        let mut few = ThinnedSamples::new(100);
        (0..100).for_each(|number| few.push(number, number));
        assert_eq!(few.kept.len(), 100);
    }

    #[test]
    fn many_processes_and_threads_have_fewer_samples_each() {
        assert_eq!(
            [(1, 1), (64, 1), (4096, 1), (1, 100)].map(|(a, b)| max_samples(a, b)),
            [65_536, 65_536, 1024, 5242]
        );
        assert_eq!(max_samples(usize::MAX, usize::MAX), MIN_SAMPLES);
    }

    #[test]
    fn hostile_texts_are_no_stacks() {
        let mut texts = StackTexts::new();
        let deep = "[".repeat(100_000);
        let huge = format!(r#"{{"frames":[{{"name":"{}"}}]}}"#, "x".repeat(MAX_STACK_BYTES));
        let damaged = [
            "",
            "null",
            "{}",
            "[]",
            r#"{"frames":7}"#,
            r#"{"frames":[7]}"#,
            r#"{"frames":[{"file":"a.py","line":1}]}"#,
            r#"{"frames":[{"name":"f","line":-1}]}"#,
            r#"{"frames":[{"name":"f","line":99999999999}]}"#,
            r#"{"frames":[{"name":"f","line":1}"#,
            r#"{"frames":[{"name":["f"],"line":1}]}"#,
            &deep,
            &huge,
        ];
        for text in damaged {
            assert_eq!(texts.stack(text.as_bytes()), None, "{}", &text[..text.len().min(60)]);
        }
        assert_eq!(texts.stack(b"{\"frames\":[{\"name\":\"\xff\"}]}"), None);
        assert_eq!(texts.stack(br#"{"frames":[]}"#), Some(NO_STACK));
        let known = texts.stack(br#"{"frames":[{"name":"f\"","file":"a.py","line":8,"more":{}}],"x":1}"#);
        assert_eq!(known, Some(0));
        let again = texts.stack(br#"{"frames":[{"name":"f\"","file":"a.py","line":8}]}"#);
        assert_eq!(again, known);
        let recursion = vec![r#"{"name":"f","file":"a.py"}"#; 5000].join(",");
        let stack = texts.stack(format!(r#"{{"frames":[{recursion}]}}"#).as_bytes()).unwrap();
        let stacks = texts.builder.finish();
        assert_eq!(stacks.frames(stack).count(), MAX_FRAMES);
        assert!(stacks.is_valid());
    }

    #[test]
    fn a_period_counts_from_the_event_that_states_it() {
        let mut periods = SamplePeriods::default();
        let texts = ["{}", r#"{"rpd":{"period_ms":10.1}}"#, "{}", r#"{"rpd":{"period_ms":20}}"#];
        let found = texts.map(|text| {
            periods.read(text.as_bytes());
            periods.current
        });
        assert_eq!((found, periods.first), ([0.0, 10.1, 10.1, 20.0], Some(10.1)));
        for odd in ["-1", "0", "1e39", "\"10\"", "null", "[]", "1e9"] {
            periods.read(format!(r#"{{"rpd":{{"period_ms":{odd}}}}}"#).as_bytes());
            assert_eq!(periods.current, 20.0, "{odd}");
        }
    }
}
