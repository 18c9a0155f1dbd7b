//! Reads the regions of a unit, the events, samples and args of its calls to MPI, and its work on GPUs.

use crate::call_values::{CallValues, read_value};
use crate::functions::{FunctionKind, GpuWait};
use crate::gpu_metrics::UnitGpus;
use crate::gpu_rows::GpuRows;
use crate::id_index::IdIndex;
use crate::python_samples::{UnitSamples, read_python_samples};
use crate::region_names::RegionNames;
use crate::thread_cpus::{ThreadCpus, read_thread_cpus};
use rpd_console::Failure;
use rpd_run::{JoinedEvents, RowUnit, RunDatabase, UnitNames, row_times};
use rpd_shard::model::{Cells, IntColumn, Value, rocpd};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// No call.
pub(crate) const NO_CALL: u32 = u32::MAX;
/// Key of rows without a thread.
const NO_THREAD: i64 = i64::MIN;
/// Maximum number of regions of a unit, and of calls and samples together, which have 32-bit numbers.
const MAX_ROWS: usize = 1 << 31;
/// Names of the tracks that are read.
const REQUEST_TRACK: &[u8] = b"MPI request";
const COMMUNICATOR_TRACK: &[u8] = b"communicator";
/// Categories of ranges that a program names itself, as AMD's tools and ours spell them, begin so.
const MARKER_CATEGORY: &[u8] = b"MARKER";

/// A region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionRow {
    /// Key of its process, if the unit is of several; otherwise 0.
    pub(crate) process: i64,
    /// Key of its thread.
    pub(crate) thread: i64,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Key of the row.
    pub(crate) id: i64,
    /// Place of its name among the strings.
    pub(crate) name: u32,
    /// Index of its call, or [`NO_CALL`].
    pub(crate) call: u32,
    /// Whether it had not ended when the recording did.
    pub(crate) is_open: bool,
}

/// A region that is a call to MPI; in a unit with work on GPUs also one to RCCL, HIP or CUDA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRow {
    /// Stack id; 0 if it has none.
    pub(crate) stack: i64,
    /// Number of its function in [`RegionNames`].
    pub(crate) function: u16,
    /// Whether it is a range that only has the name of a function.
    pub(crate) is_marker: bool,
    pub(crate) values: CallValues,
}

/// A sample on the track of requests or of communicators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleRow {
    /// Key of its process, if the unit is of several; otherwise 0.
    pub(crate) process: i64,
    pub(crate) is_request: bool,
    pub(crate) stack: i64,
    pub(crate) parent: i64,
    pub(crate) values: CallValues,
}

/// The rows of a unit.
#[derive(Debug, Default)]
pub(crate) struct UnitRows {
    pub(crate) regions: Vec<RegionRow>,
    pub(crate) calls: Vec<CallRow>,
    pub(crate) samples: Vec<SampleRow>,
    /// Work on GPUs. Empty in a run of one process.
    pub(crate) gpu_work: GpuRows,
    /// Names of the communicators.
    pub(crate) communicators: Vec<Box<[u8]>>,
    /// The CPUs of threads, by the key of the thread.
    pub(crate) cpus: BTreeMap<i64, ThreadCpus>,
    /// Sampled stacks of Python.
    pub(crate) python: UnitSamples,
    /// Label of the only GPU.
    pub(crate) gpu: Option<String>,
    /// The GPUs with work, and what is recorded about GPUs.
    pub(crate) gpus: UnitGpus,
    /// Number of regions without valid times or name.
    pub(crate) unusable: u64,
}

const REGION: [&str; 7] = ["pid", "tid", "start", "end", "name_id", "event_id", "extdata"];
/// Value in the extdata of regions that had not ended.
const OPEN: &[u8] = br#""open":true"#;
const MAX_OPEN_TEXT: usize = 256;
const SAMPLE: [&str; 2] = ["track_id", "event_id"];
const EVENT: [&str; 3] = ["category_id", "stack_id", "parent_stack_id"];
const ARG: [&str; 3] = ["event_id", "name", "value"];

impl UnitRows {
    /// Reads the rows of a unit. A unit without calls to MPI and kernels that communicate has no rows here. Of samples of
    /// stacks only those in the window are kept.
    ///
    /// # Errors
    /// If rows cannot be read, or the unit has more of them than can be numbered.
    pub(crate) fn read(
        run: &RunDatabase,
        unit: &RowUnit,
        names: &RegionNames,
        window: Option<(i64, i64)>,
    ) -> Result<UnitRows, Failure> {
        let mut rows = UnitRows::default();
        if run.processes.len() > 1 {
            rows.gpus.metrics = UnitGpus::read_metrics(run, unit)?;
        }
        let mut reader =
            EventReader { run, unit, events: Vec::new(), communicators: KnownCommunicators::default() };
        if run.processes.len() > 1 {
            rows.gpu_work = GpuRows::read(run, unit)?;
        }
        rows.read_regions(&mut reader, names)?;
        let has_mpi = rows.calls.iter().any(|call| names.kind(call.function).is_of_mpi());
        if !has_mpi && rows.gpu_work.rows.iter().all(|row| row.collective.is_none()) {
            return Ok(UnitRows { gpus: rows.gpus, ..UnitRows::default() });
        }
        let unit_names = UnitNames::read(&run.tables, unit)?;
        let mut gpus = unit_names.agents.iter().filter(|agent| agent.is_gpu);
        rows.gpu = gpus.next().filter(|_| gpus.next().is_none()).map(rpd_run::ComputeAgent::label);
        let used: BTreeSet<i64> = rows.gpu_work.rows.iter().map(|row| row.lane.0).collect();
        let used =
            used.into_iter().filter_map(|agent| unit_names.agents.at(unit_names.agents.place(Some(agent))));
        used.filter(|agent| agent.is_gpu).for_each(|agent| rows.gpus.add_used(agent.pci.as_deref()));
        rows.read_samples(&mut reader, &unit_names)?;
        rows.cpus = read_thread_cpus(run, unit, &unit_names, &rows.regions)?;
        rows.python = read_python_samples(run, unit, &unit_names, &rows.regions, window)?;
        if rows.calls.len() + rows.samples.len() > MAX_ROWS {
            return Err(run.tables.failure(format_args!("a process has more than {MAX_ROWS} calls")));
        }
        if !reader.events.is_empty() {
            let index = IdIndex::of_rows(&reader.events);
            rows.read_events(&reader, &index)?;
            rows.read_args(&mut reader, &index)?;
        }
        rows.number_by_name(&reader.communicators.names);
        rows.leave_out_gpu_calls(names);
        Ok(rows)
    }

    /// Leaves out the calls to HIP and CUDA that neither launch recorded work nor wait for it: they are ranges.
    fn leave_out_gpu_calls(&mut self, names: &RegionNames) {
        let stacks: Vec<i64> = self.gpu_work.rows.iter().map(|row| row.stack).collect();
        let launching = IdIndex::new(&stacks);
        for region in &mut self.regions {
            let Some(call) = self.calls.get(region.call as usize) else { continue };
            let is_idle = names.kind(call.function) == FunctionKind::Gpu(GpuWait::Nothing);
            if is_idle && (call.stack == 0 || launching.row(call.stack).is_none()) {
                region.call = NO_CALL;
            }
        }
    }

    /// Numbers the communicators by their names. The order in which they were found depends on the form of the run.
    fn number_by_name(&mut self, found: &[Box<[u8]>]) {
        let mut names = found.to_vec();
        names.sort_unstable();
        let number = |name: &[u8]| names.partition_point(|other| **other < *name) as u32;
        let numbers: Vec<u32> = found.iter().map(|name| number(name)).collect();
        let samples = self.samples.iter_mut().map(|sample| &mut sample.values);
        for values in self.calls.iter_mut().map(|call| &mut call.values).chain(samples) {
            if let Some(number) = numbers.get(values.communicator as usize) {
                values.communicator = *number;
            }
        }
        self.communicators = names;
    }

    /// Reads the regions, and the values of calls where these are at hand.
    fn read_regions(&mut self, reader: &mut EventReader<'_>, names: &RegionNames) -> Result<(), Failure> {
        let (run, unit) = (reader.run, reader.unit);
        let ids = unit.ids(rocpd::REGION);
        let pieces = run.tables.pieces_with(rocpd::REGION, ids)?;
        let mut called: Vec<(usize, u32)> = Vec::new();
        run.tables.read_joined(rocpd::REGION, &pieces, ids, (&REGION, true), &mut |rows, places, joined| {
            let [processes, threads, starts, ends, name_ids, event_ids, _] =
                REGION.map(|column| IntColumn::of(rows.column(column)));
            let extdata = rows.column("extdata");
            if self.regions.len() + places.len() > MAX_ROWS {
                return Err(run.tables.failure(format_args!("a process has more than {MAX_ROWS} regions")));
            }
            self.regions.reserve(places.len());
            called.clear();
            for i in places {
                let name = name_ids.at(i).and_then(|id| run.strings.place(id));
                let (Some((start, end)), Some(name)) = (row_times(starts, ends, i), name) else {
                    self.unusable += 1;
                    continue;
                };
                let name = name as u32;
                let mut region = RegionRow {
                    process: if unit.is_unclaimed { processes.at(i).unwrap_or(0) } else { 0 },
                    thread: threads.at(i).unwrap_or(NO_THREAD),
                    start,
                    end: end.max(start),
                    id: rows.keys.get(i),
                    name,
                    call: NO_CALL,
                    is_open: is_open(extdata, i),
                };
                let has_gpu_work = !self.gpu_work.rows.is_empty();
                let is_read = |function: &u16| has_gpu_work || names.kind(*function).is_of_mpi();
                if let Some(function) = names.function(name).filter(is_read) {
                    region.call = self.calls.len() as u32;
                    let values = CallValues::default();
                    self.calls.push(CallRow { stack: 0, function, is_marker: false, values });
                    match joined {
                        Some(_) => called.push((i, region.call)),
                        None => reader.events.extend(event_ids.at(i).map(|event| (event, region.call))),
                    }
                }
                self.regions.push(region);
            }
            let Some(joined) = joined else { return Ok(()) };
            let is_marker = joined.category_id.is_some_and(|category| is_marker(run, category));
            for (i, call) in &called {
                let call = &mut self.calls[*call as usize];
                call.stack = joined.stack_ids.get(*i).stack_id().unwrap_or(0);
                call.is_marker = is_marker;
            }
            reader.communicators.read_joined(joined, &called, &mut self.calls, |call| &mut call.values);
            Ok(())
        })
    }

    fn read_samples(&mut self, reader: &mut EventReader<'_>, names: &UnitNames) -> Result<(), Failure> {
        let (run, unit) = (reader.run, reader.unit);
        let track = |id: Option<i64>| {
            let track = names.tracks.at(names.tracks.place(id))?;
            let name = run.strings.at(run.strings.place(track.name?)?);
            let is_read = name == REQUEST_TRACK || name == COMMUNICATOR_TRACK;
            is_read.then(|| (name == REQUEST_TRACK, track.process.unwrap_or(0)))
        };
        let mut tracks: BTreeMap<Option<i64>, Option<(bool, i64)>> = BTreeMap::new();
        let ids = unit.ids(rocpd::SAMPLE);
        let pieces = run.tables.pieces_with(rocpd::SAMPLE, ids)?;
        let mut sampled: Vec<(usize, u32)> = Vec::new();
        run.tables.read_joined(rocpd::SAMPLE, &pieces, ids, (&SAMPLE, true), &mut |rows, places, joined| {
            let [track_ids, event_ids] = SAMPLE.map(|column| rows.column(column));
            sampled.clear();
            for i in places {
                let id = track_ids.int(i);
                let known = *tracks.entry(id).or_insert_with(|| track(id));
                let Some((is_request, process)) = known else { continue };
                let process = if unit.is_unclaimed { process } else { 0 };
                let row = self.samples.len() as u32;
                match (joined, event_ids.int(i)) {
                    (Some(_), _) => sampled.push((i, row)),
                    (None, Some(event)) => reader.events.push((event, self.calls.len() as u32 + row)),
                    (None, None) => continue,
                }
                let values = CallValues::default();
                self.samples.push(SampleRow { process, is_request, stack: 0, parent: 0, values });
            }
            let Some(joined) = joined else { return Ok(()) };
            for (i, row) in &sampled {
                let sample = &mut self.samples[*row as usize];
                sample.stack = joined.stack_ids.get(*i).stack_id().unwrap_or(0);
                sample.parent = joined.parent_stack_ids.get(*i).stack_id().unwrap_or(0);
            }
            let samples = &mut self.samples;
            reader.communicators.read_joined(joined, &sampled, samples, |sample| &mut sample.values);
            Ok(())
        })
    }

    /// Reads the events of calls and samples that are not at hand with these. Rows of `index` are the calls, then the
    /// samples.
    fn read_events(&mut self, reader: &EventReader<'_>, index: &IdIndex) -> Result<(), Failure> {
        let (run, ids) = (reader.run, reader.unit.ids(rocpd::EVENT));
        let mut markers: HashMap<i64, bool> = HashMap::new();
        let mut is_marker =
            |category: i64| *markers.entry(category).or_insert_with(|| is_marker(run, category));
        let pieces = run.tables.unjoined_pieces(rocpd::EVENT, ids)?;
        run.tables.read_pieces(rocpd::EVENT, &pieces, ids, &EVENT, &mut |_, rows, places| {
            let [categories, stacks, parents] = EVENT.map(|column| rows.column(column));
            for i in places {
                let Some(row) = index.row(rows.keys.get(i)) else { continue };
                let stack = stacks.get(i).stack_id().unwrap_or(0);
                if let Some(call) = self.calls.get_mut(row) {
                    call.stack = stack;
                    call.is_marker = categories.int(i).is_some_and(&mut is_marker);
                } else if let Some(sample) = self.samples.get_mut(row - self.calls.len()) {
                    sample.stack = stack;
                    sample.parent = parents.get(i).stack_id().unwrap_or(0);
                }
            }
            Ok(())
        })
    }

    fn read_args(&mut self, reader: &mut EventReader<'_>, index: &IdIndex) -> Result<(), Failure> {
        let (run, ids) = (reader.run, reader.unit.ids(rocpd::ARG));
        let calls = self.calls.len();
        let (call_rows, samples) = (&mut self.calls, &mut self.samples);
        let pieces = run.tables.unjoined_pieces(rocpd::ARG, ids)?;
        run.tables.read_pieces(rocpd::ARG, &pieces, ids, &ARG, &mut |_, rows, places| {
            let [event_ids, arg_names, arg_values] = ARG.map(|column| rows.column(column));
            for i in places {
                let Some(row) = event_ids.int(i).and_then(|event| index.row(event)) else { continue };
                let Value::Text(name) = arg_names.get(i) else { continue };
                let values = match call_rows.get_mut(row) {
                    Some(call) => &mut call.values,
                    None => match samples.get_mut(row - calls) {
                        Some(sample) => &mut sample.values,
                        None => continue,
                    },
                };
                reader.communicators.read(values, name, arg_values.get(i));
            }
            Ok(())
        })
    }
}

/// Reads what tables of events have for the calls and samples of a unit.
struct EventReader<'a> {
    run: &'a RunDatabase,
    unit: &'a RowUnit,
    /// Event of each call or sample that is not read yet, and its row: the calls, then the samples.
    events: Vec<(i64, u32)>,
    communicators: KnownCommunicators,
}

/// Names of communicators, in the order in which they are found.
#[derive(Default)]
struct KnownCommunicators {
    names: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, u32>,
    last: Option<u32>,
}

impl KnownCommunicators {
    fn number(&mut self, name: &[u8]) -> u32 {
        if let Some(last) = self.last
            && self.names.get(last as usize).is_some_and(|known| **known == *name)
        {
            return last;
        }
        let known = self.numbers.get(name).copied();
        let number = known.unwrap_or_else(|| {
            self.names.push(name.into());
            let number = self.names.len() as u32 - 1;
            self.numbers.insert(name.into(), number);
            number
        });
        *self.last.insert(number)
    }

    /// Stores the value of an arg.
    fn read(&mut self, values: &mut CallValues, name: &[u8], value: Value<'_>) {
        match (name, value) {
            (b"comm", Value::Text(text)) => values.communicator = self.number(text),
            (name, value) => read_value(values, name, value),
        }
    }

    /// Stores the args of some rows, of which `found` has the place in `joined` and the index in `rows`.
    fn read_joined<R>(
        &mut self,
        joined: JoinedEvents<'_>,
        found: &[(usize, u32)],
        rows: &mut [R],
        values_of: impl Fn(&mut R) -> &mut CallValues,
    ) {
        for (name, cells) in joined.args {
            if let ("comm", Cells::Text(texts)) = (*name, cells) {
                // Rows have few communicators, each of which is looked up once.
                let mut numbers: Vec<Option<u32>> = vec![None; texts.ends.len()];
                for (place, row) in found {
                    let code = texts.codes[*place];
                    if let Some(known) = numbers.get_mut(code as usize) {
                        let number = *known.get_or_insert_with(|| self.number(texts.entry(code)));
                        values_of(&mut rows[*row as usize]).communicator = number;
                    }
                }
                continue;
            }
            for (place, row) in found {
                match cells.get(*place) {
                    Value::Null => {}
                    value => self.read(values_of(&mut rows[*row as usize]), name.as_bytes(), value),
                }
            }
        }
    }
}

/// Returns whether a region had not ended when the recording did.
fn is_open(extdata: &Cells, i: usize) -> bool {
    match extdata.get(i) {
        // Longer texts are none of rpd's.
        Value::Text(text) => {
            (OPEN.len()..MAX_OPEN_TEXT).contains(&text.len())
                && text.windows(OPEN.len()).any(|part| part == OPEN)
        }
        _ => false,
    }
}

/// Returns whether a category is that of ranges that a program names itself.
fn is_marker(run: &RunDatabase, category: i64) -> bool {
    let place = run.strings.place(category);
    place.is_some_and(|place| run.strings.at(place).starts_with(MARKER_CATEGORY))
}
