//! Decodes the units of a file of calls.

use super::{CallFile, CallFileError};
use crate::labels::LabelKey;
use crate::python_samples::{MAX_SAMPLES, WorkSample};
use crate::python_stacks::NO_STACK;
use crate::region_names::RegionNames;
use crate::step_ranges::StepRanges;
use crate::thread_calls::ThreadTimeline;
use crate::unit_calls::UnitCalls;
use rayon::prelude::*;
use rpd_run::{RunDatabase, is_row_time};
use rpd_shard::record::wire;
use std::os::unix::fs::FileExt;
use zstd::bulk::Decompressor;

/// Maximum length of the label of a GPU.
const MAX_GPU_BYTES: usize = 4096;

impl CallFile {
    /// Reads the calls of all units, in their order.
    ///
    /// # Errors
    /// The first damage.
    pub(crate) fn units(
        &self,
        run: &RunDatabase,
        names: &RegionNames,
    ) -> Result<Vec<UnitCalls>, CallFileError> {
        let units = self.units.par_iter().zip(&run.units).map(|(&(offset, stored, decoded), unit)| {
            let max_processes = if unit.is_unclaimed { run.processes.len() } else { 1 };
            let mut frame = vec![0; stored];
            self.file.read_exact_at(&mut frame, offset)?;
            let damaged = |problem: String| CallFileError::Damaged { offset, problem };
            let found = decode(&frame, decoded).map_err(damaged)?;
            check(&found, max_processes, names).map_err(|problem| damaged(problem.to_owned()))?;
            Ok(found)
        });
        units.collect()
    }
}

fn decode(frame: &[u8], decoded_bytes: usize) -> Result<UnitCalls, String> {
    let mut decompressor = Decompressor::new().map_err(|error| error.to_string())?;
    let bytes = decompressor.decompress(frame, decoded_bytes).map_err(|error| error.to_string())?;
    if bytes.len() != decoded_bytes {
        return Err("it has another length than it states".to_owned());
    }
    let mut unit: UnitCalls = wire::decode_unlimited(&bytes).map_err(|error| error.to_string())?;
    let timelines = unit.processes.iter_mut().flat_map(|process| &mut process.timelines);
    timelines.for_each(|timeline| timeline.shrink_to_fit());
    Ok(unit)
}

/// Returns whether rows of a database can have the first and the last time of a thread.
fn is_row_span(timeline: &ThreadTimeline) -> bool {
    let are_valid = [timeline.start, timeline.end].into_iter().all(is_row_time);
    are_valid && timeline.start <= timeline.end
}

/// Checks the properties on which joining the calls to those of the run relies. [`rpd_graph::JobCalls::check`] checks the rest.
fn check(unit: &UnitCalls, max_processes: usize, names: &RegionNames) -> Result<(), &'static str> {
    if unit.processes.len() > max_processes
        || !unit.processes.is_sorted_by(|one, other| one.process < other.process)
    {
        return Err("it has more processes than the database");
    }
    if unit.gpu.as_ref().is_some_and(|gpu| gpu.len() > MAX_GPU_BYTES) {
        return Err("the label of a GPU is too long");
    }
    if !unit.gpus.is_valid() {
        return Err("values of a GPU are not in order, or of too many GPUs");
    }
    let is_known = |label: &LabelKey| match *label {
        LabelKey::Name(place) => names.has_string(place),
        LabelKey::Class(class) => names.has_class(class),
        LabelKey::Function(function) => names.has_function(function),
        LabelKey::Between(before, after) => {
            [before, after].into_iter().flatten().all(|border| names.has_function(border.function))
        }
        LabelKey::GpuWork(name) => (name as usize) < unit.gpu_work.len(),
        LabelKey::StreamIdle | LabelKey::Other => true,
    };
    if !unit.labels.iter().all(is_known) {
        return Err("a label is not in the database");
    }
    if !unit.python_stacks.is_valid() {
        return Err("a stack of Python has no such frames");
    }
    for process in &unit.processes {
        let timelines = process.timelines.len();
        for timeline in &process.timelines {
            let times = timeline.calls.iter().flat_map(|call| [call.enter_ns, call.exit_ns()]);
            let spans = timeline.step_ranges.iter().flat_map(|ranges| &ranges.spans);
            let mut times = times.chain(spans.flat_map(|span| [span.0, span.1]));
            if !times.all(|time| (timeline.start..=timeline.end).contains(&time)) || !is_row_span(timeline) {
                return Err("a time is outside of its thread");
            }
            let (calls, work) = (&timeline.calls, &timeline.work);
            let mut labels = calls.iter().map(|call| call.label).chain(work.iter().map(|work| work.label));
            if !labels.all(|label| (label as usize) < unit.labels.len()) {
                return Err("a call or its work has no label");
            }
            let operations = &timeline.operations;
            if timeline.local_dependencies.iter().any(|found| found.awaited_timeline as usize >= timelines) {
                return Err("a call waits for no timeline of its process");
            }
            if operations.completions.iter().any(|completion| completion.begun_on as usize >= timelines) {
                return Err("a completion is of no thread of its process");
            }
            let are_usable = |ranges: &StepRanges| {
                let spans = &ranges.spans;
                names.has_class(ranges.class)
                    && spans.len() == ranges.names.len()
                    && ranges.names.iter().all(|place| names.has_string(*place))
                    && spans.is_sorted_by(|one, other| one.1 <= other.0)
            };
            if !timeline.amounts.is_valid(work.len()) {
                return Err("there are more or fewer amounts than segments of work");
            }
            if !timeline.cpus.is_valid() {
                return Err("shares of a CPU are not in order, or no shares");
            }
            let samples = &timeline.python_samples;
            let is_usable = |sample: &WorkSample| {
                (timeline.start..=timeline.end).contains(&sample.time_ns)
                    && (sample.stack == NO_STACK || unit.python_stacks.has(sample.stack))
                    && (sample.label as usize) < unit.labels.len()
                    && sample.has_valid_weight()
            };
            if samples.len() > MAX_SAMPLES
                || !samples.iter().all(is_usable)
                || !samples.is_sorted_by_key(|sample| sample.time_ns)
            {
                return Err("samples of Python are not in order, or have no stack or label");
            }
            if !timeline.step_ranges.iter().all(are_usable) {
                return Err("ranges of steps are not in order, or have no name");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::labels::LabelNumbers;
    use crate::unit_calls::ProcessCalls;
    use crate::work_amounts::WorkAmounts;
    use rpd_graph::{BegunOperation, Call, Completion, WorkSegment};

    /// The calls of a thread, which are usable.
    fn unit() -> UnitCalls {
        let timeline = ThreadTimeline {
            start: 0,
            end: 30,
            calls: vec![Call { enter_ns: 10, duration_ns: 10, label: 0 }],
            work: vec![WorkSegment { label: 0, ns: 10 }],
            first_work: vec![0, 1, 1],
            python_samples: [3, 7]
                .map(|time_ns| WorkSample { time_ns, stack: NO_STACK, label: 0, weight: 1.0 })
                .to_vec(),
            ..ThreadTimeline::default()
        };
        let mut labels = LabelNumbers::default();
        labels.number(LabelKey::Other);
        let process = ProcessCalls { timelines: vec![timeline], ..ProcessCalls::default() };
        UnitCalls { processes: vec![process], labels: labels.into_keys(), ..UnitCalls::default() }
    }

    #[test]
    fn calls_that_no_rows_yield_are_refused() {
        let names = RegionNames::default();
        assert_eq!(check(&unit(), 1, &names), Ok(()));
        type UnitChange = fn(&mut UnitCalls);
        let odd_samples = "samples of Python are not in order, or have no stack or label";
        let changes: [(UnitChange, &str); 16] = [
            (|unit| unit.processes.extend(self::unit().processes), "it has more processes than the database"),
            (|unit| unit.gpu = Some("x".repeat(MAX_GPU_BYTES + 1)), "the label of a GPU is too long"),
            (
                |unit| unit.gpus.used = vec!["x".repeat(MAX_GPU_BYTES)],
                "values of a GPU are not in order, or of too many GPUs",
            ),
            (|unit| unit.labels[0] = LabelKey::Name(0), "a label is not in the database"),
            (|unit| unit.labels[0] = LabelKey::Function(3), "a label is not in the database"),
            (|unit| unit.labels.clear(), "a call or its work has no label"),
            (|unit| unit.processes[0].timelines[0].calls[0].enter_ns = 31, "a time is outside of its thread"),
            (
                |unit| unit.processes[0].timelines[0].calls[0].duration_ns = u64::MAX,
                "a time is outside of its thread",
            ),
            (|unit| unit.processes[0].timelines[0].end = i64::MAX, "a time is outside of its thread"),
            (|unit| unit.processes[0].timelines[0].start = i64::MIN, "a time is outside of its thread"),
            (
                |unit| {
                    let operation = BegunOperation::Message(0);
                    let completion = Completion { call: 0, begun_on: 1, operation };
                    unit.processes[0].timelines[0].operations.completions.push(completion);
                },
                "a completion is of no thread of its process",
            ),
            (
                |unit| unit.processes[0].timelines[0].amounts = WorkAmounts::of_segments(vec![1, 2]),
                "there are more or fewer amounts than segments of work",
            ),
            (|unit| unit.processes[0].timelines[0].python_samples[0].stack = 0, odd_samples),
            (|unit| unit.processes[0].timelines[0].python_samples[0].time_ns = 31, odd_samples),
            (|unit| unit.processes[0].timelines[0].python_samples[1].label = 1, odd_samples),
            (|unit| unit.processes[0].timelines[0].python_samples[1].weight = f32::NAN, odd_samples),
        ];
        for (change, problem) in changes {
            let mut odd = unit();
            change(&mut odd);
            assert_eq!(check(&odd, 1, &names), Err(problem));
        }
    }
}
