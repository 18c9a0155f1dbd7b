//! Reads the kernels and copies of a unit, and the collectives that kernels carry out.

use crate::work_amounts::WorkAmounts;
use rpd_console::Failure;
use rpd_run::{ById, RowUnit, RunDatabase, UnitNames, row_times};
use rpd_shard::model::{IntColumn, TableId, Value, rocpd};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of kernels and copies of a unit. Their calls have 31-bit numbers.
const MAX_ROWS: usize = 1 << 29;
/// Maximum number of names; all others are empty.
const MAX_NAMES: usize = 1 << 16;
/// Maximum length of a name and of the text of an arg, in bytes. Longer names are cut, longer args are not read.
const MAX_TEXT: usize = 256;
/// Words in the names of kernels that communicate, in lower case.
pub const COMMUNICATING: [&str; 3] = ["nccl", "rccl", "cross_device_reduce"];

/// A kernel or copy.
#[derive(Clone, Debug)]
pub(crate) struct GpuRow {
    /// Key of its process, if the unit is of several; otherwise 0.
    pub(crate) process: i64,
    /// Its stream; without one, its queue.
    pub(crate) lane: GpuLane,
    /// Start and end, ns in job time.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Index of its name in [`GpuRows::names`].
    pub(crate) name: u32,
    /// Work-items of a kernel, bytes of a copy, at most [`WorkAmounts::MAX`]; 0 if they are not recorded.
    pub(crate) amount: u32,
    event: i64,
    /// Stack id of the call that launched it; 0 if it has none.
    pub(crate) stack: i64,
    /// The collective that a kernel carries out; `None` for other kernels and for copies.
    pub(crate) collective: Option<Box<KernelCollective>>,
}

/// Agent, and stream or queue. Streams have even numbers, queues odd ones.
pub(crate) type GpuLane = (i64, i64);

/// A collective as the profiler describes it. Kernels share equal texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KernelCollective {
    /// Function, in any spelling: that of the arg `collective`, or the name of the kernel.
    pub(crate) function: Arc<str>,
    /// Communicator, and its ranks.
    pub(crate) group: Option<Arc<str>>,
    pub(crate) ranks: Option<Arc<str>>,
    /// Number of ranks.
    pub(crate) size: Option<u32>,
    /// Number on the communicator.
    pub(crate) seq: Option<u64>,
    /// Number of elements that it passes.
    pub(crate) elements: Option<u32>,
}

/// The kernels and copies of a unit.
#[derive(Debug, Default)]
pub(crate) struct GpuRows {
    pub(crate) rows: Vec<GpuRow>,
    /// Names of kernels and copies.
    pub(crate) names: Vec<String>,
}

/// Columns that kernels and copies have, in this order, and then those of which the product is the amount.
const COLUMNS: usize = 8;
const KERNEL: [&str; COLUMNS + 3] = [
    "pid",
    "agent_id",
    "stream_id",
    "queue_id",
    "start",
    "end",
    "kernel_id",
    "event_id",
    "grid_size_x",
    "grid_size_y",
    "grid_size_z",
];
const COPY: [&str; COLUMNS + 1] =
    ["pid", "dst_agent_id", "stream_id", "queue_id", "start", "end", "name_id", "event_id", "size"];
const EVENT: [&str; 1] = ["stack_id"];
const ARG: [&str; 3] = ["event_id", "name", "value"];

impl GpuRows {
    /// Reads the rows of a unit, in the order of their times.
    ///
    /// # Errors
    /// If rows cannot be read, or the unit has more of them than can be numbered.
    pub(crate) fn read(run: &RunDatabase, unit: &RowUnit) -> Result<GpuRows, Failure> {
        let mut found = GpuRows::default();
        if !unit.has_rows(rocpd::KERNEL_DISPATCH) && !unit.has_rows(rocpd::MEMORY_COPY) {
            return Ok(found);
        }
        let mut names = GpuNames::default();
        let kernels = UnitNames::read_kernels(&run.tables, unit, |name| names.number(&name))?;
        found.read_table(run, unit, (rocpd::KERNEL_DISPATCH, &KERNEL), &mut names, &kernels)?;
        found.read_table(run, unit, (rocpd::MEMORY_COPY, &COPY), &mut names, &kernels)?;
        found.names = names.names;
        found.read_stacks(run, unit)?;
        found.find_collectives(run, unit)?;
        found.rows.sort_by_key(|row| (row.process, row.start, row.end, row.lane, row.event));
        Ok(found)
    }

    fn read_table(
        &mut self,
        run: &RunDatabase,
        unit: &RowUnit,
        (table, columns): (TableId, &'static [&'static str]),
        names: &mut GpuNames,
        kernels: &ById<u32>,
    ) -> Result<(), Failure> {
        let mut of_strings: HashMap<Option<i64>, u32> = HashMap::new();
        run.tables.read_rows(table, unit.ids(table), columns, &mut |rows, places| {
            let Some((shared, sizes)) = columns.split_first_chunk::<COLUMNS>() else { return Ok(()) };
            let [processes, agents, streams, queues, starts, ends, named, events] =
                shared.map(|column| IntColumn::of(rows.column(column)));
            let sizes: Vec<IntColumn<'_>> =
                sizes.iter().map(|column| IntColumn::of(rows.column(column))).collect();
            if self.rows.len() + places.len() > MAX_ROWS {
                return Err(run.tables.failure(format_args!("a process has more than {MAX_ROWS} kernels")));
            }
            for i in places {
                let Some((start, end)) = row_times(starts, ends, i) else { continue };
                let name = match table {
                    rocpd::KERNEL_DISPATCH => kernels.at(kernels.place(named.at(i))).copied(),
                    _ => {
                        let id = named.at(i);
                        let text =
                            || run.strings.at(run.strings.place(id.unwrap_or(0)).unwrap_or(usize::MAX));
                        Some(
                            *of_strings
                                .entry(id)
                                .or_insert_with(|| names.number(&String::from_utf8_lossy(text()))),
                        )
                    }
                };
                let lane = streams.at(i).map(|stream| stream.wrapping_mul(2));
                let lane = lane.or_else(|| queues.at(i).map(|queue| queue.wrapping_mul(2).wrapping_add(1)));
                self.rows.push(GpuRow {
                    process: if unit.is_unclaimed { processes.at(i).unwrap_or(0) } else { 0 },
                    lane: (agents.at(i).unwrap_or(0), lane.unwrap_or(-1)),
                    start,
                    end: end.max(start),
                    name: name.unwrap_or_else(|| names.number("")),
                    amount: amount(sizes.iter().map(|size| size.at(i))),
                    event: events.at(i).unwrap_or(i64::MIN),
                    stack: 0,
                    collective: None,
                });
            }
            Ok(())
        })
    }

    /// Reads the stack ids of the rows' events.
    fn read_stacks(&mut self, run: &RunDatabase, unit: &RowUnit) -> Result<(), Failure> {
        self.rows.sort_by_key(|row| row.event);
        run.tables.read_rows(rocpd::EVENT, unit.ids(rocpd::EVENT), &EVENT, &mut |rows, places| {
            let stacks = rows.column(EVENT[0]);
            // Events and rows ascend.
            let first = places.clone().next().map_or(i64::MAX, |i| rows.keys.get(i));
            let mut next = self.rows.partition_point(|row| row.event < first);
            for i in places {
                let event = rows.keys.get(i);
                while self.rows.get(next).is_some_and(|row| row.event < event) {
                    next += 1;
                }
                while let Some(row) = self.rows.get_mut(next).filter(|row| row.event == event) {
                    row.stack = stacks.get(i).stack_id().unwrap_or(0);
                    next += 1;
                }
            }
            Ok(())
        })
    }

    /// Finds the kernels that communicate by their names, and reads their args. The rows are in the order of their events.
    fn find_collectives(&mut self, run: &RunDatabase, unit: &RowUnit) -> Result<(), Failure> {
        let function = |name: &String| is_collective_kernel(name).then(|| Arc::from(name.as_str()));
        let functions: Vec<Option<Arc<str>>> = self.names.iter().map(function).collect();
        for row in &mut self.rows {
            row.collective = functions[row.name as usize].clone().map(|function| {
                let (group, ranks, size, seq, elements) = (None, None, None, None, None);
                Box::new(KernelCollective { function, group, ranks, size, seq, elements })
            });
        }
        if functions.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut texts: HashSet<Arc<str>> = HashSet::new();
        run.tables.read_rows(rocpd::ARG, unit.ids(rocpd::ARG), &ARG, &mut |rows, places| {
            let [events, arg_names, values] = ARG.map(|column| rows.column(column));
            for i in places {
                let (Some(event), Value::Text(name)) = (events.int(i), arg_names.get(i)) else { continue };
                let Ok(place) = self.rows.binary_search_by_key(&event, |row| row.event) else { continue };
                if let Some(collective) = &mut self.rows[place].collective {
                    collective.read_arg(name, values.get(i), &mut texts);
                }
            }
            Ok(())
        })
    }
}

/// Returns the product of sizes; 0 if one of them is not recorded.
fn amount(sizes: impl Iterator<Item = Option<i64>>) -> u32 {
    let product = |product: u64, size: Option<i64>| {
        product.saturating_mul(size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0))
    };
    u32::try_from(sizes.fold(1, product)).unwrap_or(WorkAmounts::MAX)
}

impl KernelCollective {
    fn read_arg(&mut self, name: &[u8], value: Value<'_>, texts: &mut HashSet<Arc<str>>) {
        let Some(text) = value.text_lossy().filter(|text| text.len() <= MAX_TEXT) else { return };
        let mut shared = || match texts.get(&*text) {
            Some(known) => known.clone(),
            None => {
                let new: Arc<str> = Arc::from(&*text);
                texts.insert(new.clone());
                new
            }
        };
        match name {
            b"collective" => self.function = shared(),
            b"comm" => self.group = Some(shared()),
            b"ranks" => self.ranks = Some(shared()),
            b"size" => self.size = text.parse().ok(),
            b"seq" => self.seq = text.parse().ok(),
            b"count" => self.elements = text.parse().ok(),
            _ => {}
        }
    }
}

/// Returns whether a run has kernels of collectives, by the names of its kernels.
///
/// # Errors
/// If rows cannot be read.
pub fn has_collective_kernels(run: &RunDatabase) -> Result<bool, Failure> {
    for unit in run.units.iter().filter(|unit| unit.has_rows(rocpd::KERNEL_DISPATCH)) {
        let found = UnitNames::read_kernels(&run.tables, unit, |name| is_collective_kernel(&name))?;
        if found.iter().any(|is_one| *is_one) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_collective_kernel(name: &str) -> bool {
    let name = name.to_lowercase();
    COMMUNICATING.iter().any(|word| name.contains(word))
}

/// Names of kernels and copies, in the order in which they are found.
#[derive(Debug, Default)]
struct GpuNames {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl GpuNames {
    fn number(&mut self, name: &str) -> u32 {
        let end = (0..=name.len().min(MAX_TEXT)).rev().find(|end| name.is_char_boundary(*end));
        let name = &name[..end.unwrap_or(0)];
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() >= MAX_NAMES && !name.is_empty() {
            return self.number("");
        }
        self.names.push(name.to_owned());
        let number = self.names.len() as u32 - 1;
        self.numbers.insert(name.to_owned(), number);
        number
    }
}
