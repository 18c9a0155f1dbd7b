//! Reads the regions of a unit, and the events, samples and args of its calls to MPI.

use crate::call_values::{CallValues, NO_COMMUNICATOR, read_value};
use crate::id_index::IdIndex;
use crate::region_names::RegionNames;
use rpd_console::Failure;
use rpd_run::{EventArgs, RowUnit, RunDatabase, UnitNames, row_times};
use rpd_shard::model::{Value, rocpd};
use std::collections::{BTreeMap, HashMap};

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
}

/// A region that is a call to MPI.
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
    /// Names of the communicators.
    pub(crate) communicators: Vec<Box<[u8]>>,
    /// Label of the only GPU.
    pub(crate) gpu: Option<String>,
    /// Number of regions without valid times or name.
    pub(crate) unusable: u64,
}

const REGION: [&str; 6] = ["pid", "tid", "start", "end", "name_id", "event_id"];
const SAMPLE: [&str; 2] = ["track_id", "event_id"];
const EVENT: [&str; 3] = ["category_id", "stack_id", "parent_stack_id"];

impl UnitRows {
    /// Reads the rows of a unit. A unit without calls to MPI has no rows here.
    ///
    /// # Errors
    /// If rows cannot be read, or the unit has more of them than can be numbered.
    pub(crate) fn read(run: &RunDatabase, unit: &RowUnit, names: &RegionNames) -> Result<UnitRows, Failure> {
        let mut rows = UnitRows::default();
        let mut events = rows.read_regions(run, unit, names)?;
        if rows.calls.is_empty() {
            return Ok(UnitRows::default());
        }
        let unit_names = UnitNames::read(&run.tables, unit)?;
        let mut gpus = unit_names.agents.iter().filter(|agent| agent.is_gpu);
        rows.gpu = gpus.next().filter(|_| gpus.next().is_none()).map(rpd_run::ComputeAgent::label);
        rows.read_samples(run, unit, &unit_names, &mut events)?;
        if rows.calls.len() + rows.samples.len() > MAX_ROWS {
            return Err(run.tables.failure(format_args!("a process has more than {MAX_ROWS} calls")));
        }
        let index = IdIndex::new(&events);
        rows.read_events(run, unit, &index)?;
        rows.read_args(run, unit, &index)?;
        Ok(rows)
    }

    /// Reads the regions and returns the event of each call.
    fn read_regions(
        &mut self,
        run: &RunDatabase,
        unit: &RowUnit,
        names: &RegionNames,
    ) -> Result<Vec<i64>, Failure> {
        let mut events = Vec::new();
        // The events of calls without one must not be found: no row has this key.
        const NO_EVENT: i64 = i64::MIN;
        run.tables.read_rows(rocpd::REGION, unit.ids(rocpd::REGION), &REGION, &mut |rows, places| {
            let [processes, threads, starts, ends, name_ids, event_ids] =
                REGION.map(|column| rows.column(column));
            if self.regions.len() + places.len() > MAX_ROWS {
                return Err(run.tables.failure(format_args!("a process has more than {MAX_ROWS} regions")));
            }
            self.regions.reserve(places.len());
            for i in places {
                let name = name_ids.int(i).and_then(|id| run.strings.place(id));
                let (Some((start, end)), Some(name)) = (row_times(starts, ends, i), name) else {
                    self.unusable += 1;
                    continue;
                };
                let name = name as u32;
                let mut region = RegionRow {
                    process: if unit.is_unclaimed { processes.int(i).unwrap_or(0) } else { 0 },
                    thread: threads.int(i).unwrap_or(NO_THREAD),
                    start,
                    end: end.max(start),
                    id: rows.keys.get(i),
                    name,
                    call: NO_CALL,
                };
                if let Some(function) = names.function(name) {
                    region.call = self.calls.len() as u32;
                    let values = CallValues::default();
                    self.calls.push(CallRow { stack: 0, function, is_marker: false, values });
                    events.push(event_ids.int(i).unwrap_or(NO_EVENT));
                }
                self.regions.push(region);
            }
            Ok(())
        })?;
        Ok(events)
    }

    fn read_samples(
        &mut self,
        run: &RunDatabase,
        unit: &RowUnit,
        names: &UnitNames,
        events: &mut Vec<i64>,
    ) -> Result<(), Failure> {
        let track = |id: Option<i64>| {
            let track = names.tracks.at(names.tracks.place(id))?;
            let name = run.strings.at(run.strings.place(track.name?)?);
            let is_read = name == REQUEST_TRACK || name == COMMUNICATOR_TRACK;
            is_read.then(|| (name == REQUEST_TRACK, track.process.unwrap_or(0)))
        };
        let mut tracks: BTreeMap<Option<i64>, Option<(bool, i64)>> = BTreeMap::new();
        run.tables.read_rows(rocpd::SAMPLE, unit.ids(rocpd::SAMPLE), &SAMPLE, &mut |rows, places| {
            let [track_ids, event_ids] = SAMPLE.map(|column| rows.column(column));
            for i in places {
                let id = track_ids.int(i);
                let known = *tracks.entry(id).or_insert_with(|| track(id));
                let (Some((is_request, process)), Some(event)) = (known, event_ids.int(i)) else { continue };
                let process = if unit.is_unclaimed { process } else { 0 };
                let values = CallValues::default();
                self.samples.push(SampleRow { process, is_request, stack: 0, parent: 0, values });
                events.push(event);
            }
            Ok(())
        })
    }

    /// Reads the events of calls and samples. Rows of `index` are the calls, then the samples.
    fn read_events(&mut self, run: &RunDatabase, unit: &RowUnit, index: &IdIndex) -> Result<(), Failure> {
        let mut markers: HashMap<i64, bool> = HashMap::new();
        let mut is_marker = |category: i64| {
            *markers.entry(category).or_insert_with(|| {
                let place = run.strings.place(category);
                place.is_some_and(|place| run.strings.at(place).starts_with(MARKER_CATEGORY))
            })
        };
        run.tables.read_rows(rocpd::EVENT, unit.ids(rocpd::EVENT), &EVENT, &mut |rows, places| {
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

    fn read_args(&mut self, run: &RunDatabase, unit: &RowUnit, index: &IdIndex) -> Result<(), Failure> {
        let calls = self.calls.len();
        let mut known: HashMap<Box<[u8]>, u32> = HashMap::new();
        let mut last = NO_COMMUNICATOR;
        let communicators = &mut self.communicators;
        let mut communicator = |name: &[u8]| {
            if communicators.get(last as usize).is_some_and(|known| **known == *name) {
                return last;
            }
            last = *known.entry(name.into()).or_insert_with(|| {
                communicators.push(name.into());
                communicators.len() as u32 - 1
            });
            last
        };
        let (call_rows, samples) = (&mut self.calls, &mut self.samples);
        let mut read = |event: i64, name: &[u8], value: Value<'_>| {
            let Some(row) = index.row(event) else { return };
            let values = match call_rows.get_mut(row) {
                Some(call) => &mut call.values,
                None => match samples.get_mut(row - calls) {
                    Some(sample) => &mut sample.values,
                    None => return,
                },
            };
            match (name, value) {
                (b"comm", Value::Text(text)) => values.communicator = communicator(text),
                (name, value) => read_value(values, name, value),
            }
        };
        run.tables.read_args(unit.ids(rocpd::ARG), &mut |args| {
            match args {
                EventArgs::Rows(rows, places) => {
                    let [events, names, values] = EventArgs::COLUMNS.map(|column| rows.column(column));
                    for i in places {
                        let (Some(event), Value::Text(name)) = (events.int(i), names.get(i)) else { continue };
                        read(event, name, values.get(i));
                    }
                }
                EventArgs::Column { first_event, events, name, values } => {
                    for (event, i) in (first_event..).zip(0..events) {
                        let value = values.get(i);
                        if value != Value::Null {
                            read(event, name.as_bytes(), value);
                        }
                    }
                }
            }
            Ok(())
        })
    }
}
