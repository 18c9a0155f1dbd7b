//! Determines the tracks on which the rows of a unit are drawn.

use super::JobRows;
use rpd_run::{RowUnit, UnitNames, row_times};
use rpd_shard::model::{Cells, IntColumn, Local, Rows, TableId, Value, rocpd};
use std::collections::HashMap;

/// Index of the process for rows without a process of their own.
pub(super) const NO_PROCESS: u32 = u32::MAX;

/// A track, by indices into [`UnitNames`]; `None` if the entry is missing. The order is that of drawing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum TrackPlace {
    /// Regions and samples of a thread.
    Thread(Option<u32>),
    /// Samples that belong to no thread.
    Moments(Option<u32>),
    /// Kernels of an agent, by stream or queue.
    Lane(Option<u32>, Option<u32>),
    /// Copies, by agent.
    Copies(Option<u32>),
    /// Allocations, by agent.
    Allocations(Option<u32>),
    /// Sum of allocated memory, by agent and level.
    Sum(Option<u32>, MemoryLevel),
    /// Values of a counter.
    Counter(Option<u32>),
}

/// Kind of the allocated memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum MemoryLevel {
    Real,
    Virtual,
    Scratch,
}

impl MemoryLevel {
    pub(super) fn of(value: Value<'_>) -> MemoryLevel {
        match value {
            Value::Text(b"VIRTUAL") => MemoryLevel::Virtual,
            Value::Text(b"SCRATCH") => MemoryLevel::Scratch,
            _ => MemoryLevel::Real,
        }
    }
}

/// A track of a process. The process is an index into those of the job, or [`NO_PROCESS`].
pub(super) type TrackKey = (u32, TrackPlace);

/// The columns that determine the times and the tracks of a table's rows.
pub(super) struct RowSpans<'a> {
    pub(super) table: TableId,
    pid: &'a Cells,
    start: IntColumn<'a>,
    end: IntColumn<'a>,
    event: &'a Cells,
    place_columns: [&'a Cells; 2],
}

impl<'a> RowSpans<'a> {
    pub(super) fn of(table: TableId, rows: &'a Rows<Local>, placing: &RowPlacement<'_>) -> RowSpans<'a> {
        let place_columns = match table {
            rocpd::REGION => ["tid", ""],
            rocpd::SAMPLE => ["track_id", ""],
            rocpd::KERNEL_DISPATCH => ["agent_id", if placing.by_queue { "queue_id" } else { "stream_id" }],
            rocpd::MEMORY_COPY => ["dst_agent_id", "src_agent_id"],
            rocpd::MEMORY_ALLOCATE => ["agent_id", "level"],
            _ => ["pmc_id", ""],
        };
        let (start, end) = if table == rocpd::SAMPLE { ("timestamp", "timestamp") } else { ("start", "end") };
        RowSpans {
            table,
            pid: rows.column("pid"),
            start: IntColumn::of(rows.column(start)),
            end: IntColumn::of(rows.column(end)),
            event: rows.column("event_id"),
            place_columns: place_columns.map(|column| rows.column(column)),
        }
    }

    /// Returns the recorded start and end of a row. Returns `None` if one is missing or impossible in a job.
    #[inline]
    pub(super) fn times(&self, i: usize) -> Option<(i64, i64)> {
        row_times(self.start, self.end, i)
    }

    /// Returns the memory level of an allocation.
    pub(super) fn level(&self, i: usize) -> MemoryLevel {
        MemoryLevel::of(self.place_columns[1].get(i))
    }

    /// Returns the id of the row's event.
    #[inline]
    pub(super) fn event(&self, i: usize) -> Option<i64> {
        self.event.int(i)
    }
}

/// Names and processes that determine the tracks of rows.
#[derive(Debug)]
pub(super) struct RowPlacement<'a> {
    pub(super) names: &'a UnitNames,
    /// The process of all rows; `None` if each row names its process.
    process: Option<u32>,
    /// Indices of the processes, by id.
    processes: HashMap<i64, u32>,
    by_queue: bool,
}

impl<'a> RowPlacement<'a> {
    pub(super) fn new(job: &JobRows, unit: &RowUnit, names: &'a UnitNames) -> RowPlacement<'a> {
        let own = &unit.processes;
        let id = |place: &u32| Some((job.run.processes.get(*place as usize)?.info.id, *place));
        RowPlacement {
            names,
            process: own.first().copied().filter(|_| !unit.is_unclaimed),
            processes: own.iter().filter_map(id).collect(),
            by_queue: job.selection.group_by_queue,
        }
    }

    fn process_of(&self, id: Option<i64>) -> u32 {
        match self.process {
            Some(process) => process,
            None => id.and_then(|id| self.processes.get(&id).copied()).unwrap_or(NO_PROCESS),
        }
    }

    /// Returns the track of a row.
    #[inline]
    pub(super) fn track_key(&self, spans: &RowSpans<'_>, i: usize) -> TrackKey {
        let names = self.names;
        let [first, second] = spans.place_columns;
        let pid = || if self.process.is_some() { None } else { spans.pid.int(i) };
        match spans.table {
            rocpd::REGION => (self.process_of(pid()), TrackPlace::Thread(names.threads.place(first.int(i)))),
            rocpd::KERNEL_DISPATCH => {
                let lane = names.lanes(self.by_queue).place(second.int(i));
                (self.process_of(pid()), TrackPlace::Lane(names.agents.place(first.int(i)), lane))
            }
            rocpd::MEMORY_COPY => {
                let (to, from) = (names.agents.place(first.int(i)), names.agents.place(second.int(i)));
                let gpu = |agent: &Option<u32>| names.agents.at(*agent).is_some_and(|agent| agent.is_gpu);
                let agent = [to, from].into_iter().find(gpu).unwrap_or(to.or(from));
                (self.process_of(pid()), TrackPlace::Copies(agent))
            }
            rocpd::MEMORY_ALLOCATE => {
                (self.process_of(pid()), TrackPlace::Allocations(names.agents.place(first.int(i))))
            }
            rocpd::SAMPLE => {
                let place = names.tracks.place(first.int(i));
                let Some(track) = names.tracks.at(place) else {
                    return (self.process_of(None), TrackPlace::Moments(None));
                };
                let thread = names.threads.place(track.thread);
                let on = thread.map_or(TrackPlace::Moments(place), |thread| TrackPlace::Thread(Some(thread)));
                (self.process_of(track.process), on)
            }
            _ => self.counter(first.int(i)),
        }
    }

    /// Returns the track of a counter.
    pub(super) fn counter(&self, id: Option<i64>) -> TrackKey {
        let place = self.names.counters.place(id);
        let counter = self.names.counters.at(place);
        (self.process_of(counter.and_then(|counter| counter.process)), TrackPlace::Counter(place))
    }
}

/// Cache of the last results, for keys that alternate.
#[derive(Debug)]
pub(super) struct RecentPlaces<V> {
    slots: Vec<Option<(TrackKey, V)>>,
}

const SLOT_COUNT: usize = 64;

impl<V: Copy> Default for RecentPlaces<V> {
    fn default() -> RecentPlaces<V> {
        RecentPlaces { slots: vec![None; SLOT_COUNT] }
    }
}

impl<V: Copy> RecentPlaces<V> {
    #[inline]
    fn slot((process, place): TrackKey) -> usize {
        let number = |place: Option<u32>| place.map_or(0, |place| place.wrapping_add(1));
        let place = match place {
            TrackPlace::Thread(place)
            | TrackPlace::Moments(place)
            | TrackPlace::Copies(place)
            | TrackPlace::Allocations(place)
            | TrackPlace::Sum(place, _)
            | TrackPlace::Counter(place) => number(place),
            TrackPlace::Lane(agent, lane) => number(agent).wrapping_mul(8).wrapping_add(number(lane)),
        };
        place.wrapping_add(process.wrapping_mul(16)) as usize % SLOT_COUNT
    }

    #[inline]
    pub(super) fn get(&self, key: TrackKey) -> Option<V> {
        match self.slots.get(Self::slot(key)) {
            Some(Some((known, value))) if *known == key => Some(*value),
            _ => None,
        }
    }

    pub(super) fn put(&mut self, key: TrackKey, value: V) {
        if let Some(slot) = self.slots.get_mut(Self::slot(key)) {
            *slot = Some((key, value));
        }
    }
}
