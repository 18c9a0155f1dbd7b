//! Reads rows that have a start and an end, with their categories and names, by any number of threads.
//!
//! [`TimedRows`] passes the selected rows of a unit to a callback. Pieces of a table are read in parallel, and the
//! results are joined in their order.

mod categories;
mod names;
mod steps;
mod table;

pub(crate) use names::{CategoryCode, NameNumber, RowNames};
pub(crate) use table::TimedTable;

use crate::input::ReportRun;
use crate::report::Unavailable;
use categories::EventCategories;
use rayon::prelude::*;
use rpd_comm::{Comm, agree_on_result, gather_values};
use rpd_console::Failure;
use rpd_console::wording::counted;
use rpd_run::{ById, RowUnit, UnitNames, row_times};
use rpd_shard::model::{Cells, IntColumn, Local, Rows, Value, rocpd};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use steps::StepTimes;

/// A row that takes time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimedRow {
    pub(crate) table: TimedTable,
    /// Category of its event.
    pub(crate) category: CategoryCode,
    /// Name, if the row has one.
    pub(crate) name: Option<NameNumber>,
    /// Place of its process in the run.
    pub(crate) process: u32,
    /// Start and end, ns in job time. Either may be the first.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Id of its event.
    pub(crate) event: Option<i64>,
    /// Id of the agent that did the work, or that received a copy.
    pub(crate) agent: Option<i64>,
    /// Id of the agent that sent a copy.
    pub(crate) source_agent: Option<i64>,
}

/// Reads the timed rows of a run.
#[derive(Debug)]
pub(crate) struct TimedRows<'r> {
    pub(crate) run: &'r ReportRun,
    pub(crate) names: RowNames<'r>,
    /// Places of processes by their ids.
    places: HashMap<i64, u32>,
    /// Rows that were left out because they have no valid times.
    without_times: AtomicU64,
}

/// Rows of a table to use.
struct SelectedRows<'a> {
    table: TimedTable,
    rows: &'a Rows<Local>,
    places: Range<usize>,
    /// Category of all their events, if it is joined with them.
    category: Option<CategoryCode>,
}

/// What is known about a unit before its rows are read.
struct UnitContext<'u> {
    unit: &'u RowUnit,
    categories: EventCategories,
    kernels: ById<NameNumber>,
    steps: Option<StepTimes>,
    /// The only process; `None` if the column pid of each row determines it.
    process: Option<u32>,
}

impl<'r> TimedRows<'r> {
    pub(crate) fn new(run: &'r ReportRun) -> TimedRows<'r> {
        let processes = run.database.processes.iter().enumerate();
        let places = processes.map(|(place, process)| (process.info.id, place as u32)).collect();
        let names = RowNames::new(&run.database.strings);
        TimedRows { run, names, places, without_times: AtomicU64::new(0) }
    }

    /// Returns that rows were left out of a report, if they were.
    pub(crate) fn left_out(&self, subject: &'static str) -> Option<Unavailable> {
        let rows = self.without_times.load(Ordering::Relaxed);
        let reason = || {
            format!(
                "{} without valid times {} left out",
                counted(rows, "row"),
                if rows == 1 { "is" } else { "are" }
            )
        };
        (rows > 0).then(|| Unavailable::new(subject, reason()))
    }

    /// Returns the units of the run that have selected processes.
    pub(crate) fn units(&self) -> Vec<&'r RowUnit> {
        let is_selected =
            |unit: &&RowUnit| unit.processes.iter().any(|place| self.run.selection.contains(*place));
        // A database without processes has rows that no process claims.
        let has_none = self.run.database.processes.is_empty();
        self.run.database.units.iter().filter(|unit| has_none || is_selected(unit)).collect()
    }

    /// Reads each selected unit on the merge rank that has it, and joins the results on rank 0. Other ranks get the
    /// default. Every rank calls this. `read_unit` gets the position of the unit in the run, too.
    ///
    /// # Errors
    /// As `read_unit`. All ranks have agreed on it.
    pub(crate) fn fold_units<T: Send + Default + Serialize + DeserializeOwned>(
        &self,
        comm: &dyn Comm,
        read_unit: impl Fn(usize, &RowUnit) -> Result<T, Failure> + Sync + Send,
        join: impl Fn(T, T) -> T + Sync + Send,
    ) -> Result<T, Failure> {
        let own = self.fold_own_units(comm, read_unit, &join)?;
        self.gather(comm, own, join)
    }

    /// Reads each selected unit on the merge rank that has it, and joins the results of this rank. Every rank calls this.
    ///
    /// # Errors
    /// As `read_unit`. All ranks have agreed on it.
    pub(crate) fn fold_own_units<T: Send + Default>(
        &self,
        comm: &dyn Comm,
        read_unit: impl Fn(usize, &RowUnit) -> Result<T, Failure> + Sync + Send,
        join: impl Fn(T, T) -> T + Sync + Send,
    ) -> Result<T, Failure> {
        let run = &self.run.database;
        let selected: HashSet<*const RowUnit> = self.units().into_iter().map(std::ptr::from_ref).collect();
        let local = run.local_units.iter().filter_map(|place| Some((*place, run.units.get(*place)?)));
        let local: Vec<_> = local.filter(|(_, unit)| selected.contains(&std::ptr::from_ref(*unit))).collect();
        let read = local.into_par_iter().map(|(place, unit)| read_unit(place, unit));
        let own = read.try_reduce(T::default, |one, other| Ok(join(one, other)));
        if comm.size() == 1 { own } else { agree_on_result(comm, own) }
    }

    /// Joins the results of all merge ranks on rank 0, with the categories and the number of rows that they left out.
    /// Other ranks get the default. Every rank calls this.
    ///
    /// # Errors
    /// If a message is damaged.
    pub(crate) fn gather<T: Default + Serialize + DeserializeOwned>(
        &self,
        comm: &dyn Comm,
        own: T,
        join: impl Fn(T, T) -> T,
    ) -> Result<T, Failure> {
        if comm.size() == 1 {
            return Ok(own);
        }
        let left_out = self.without_times.swap(0, Ordering::Relaxed);
        let mut joined = T::default();
        for (theirs, left_out, categories) in gather_values(comm, (own, left_out, self.names.categories()))? {
            joined = join(joined, theirs);
            self.without_times.fetch_add(left_out, Ordering::Relaxed);
            self.names.add_categories(categories);
        }
        Ok(joined)
    }

    /// Reads the categories of the events of selected processes. Reading rows does so, too.
    pub(crate) fn read_categories(&self, comm: &dyn Comm) -> Result<(), Failure> {
        let tables = &self.run.database.tables;
        let read = |_, unit: &RowUnit| EventCategories::note_all(tables, unit, &self.names);
        self.fold_units(comm, read, |(), ()| ())
    }

    /// Passes the selected rows of a unit in these tables to `take`, and joins the results of all pieces in order.
    pub(crate) fn fold_unit<T: Send>(
        &self,
        unit: &RowUnit,
        tables: &[TimedTable],
        start: impl Fn() -> T + Sync + Send,
        take: impl Fn(&mut T, TimedRow) + Sync + Send,
        join: impl Fn(T, T) -> T + Sync + Send,
    ) -> Result<T, Failure> {
        let context = self.context(unit, tables)?;
        let source = &self.run.database.tables;
        let mut pieces = Vec::new();
        for table in tables {
            let found = source.pieces_with(table.id(), unit.ids(table.id()))?;
            pieces.extend(found.into_iter().map(|piece| (*table, piece)));
        }
        let fold_piece = |(table, piece): (TimedTable, usize)| {
            let mut result = start();
            let ids = unit.ids(table.id());
            let wanted = (table.columns(), false);
            source.read_joined(table.id(), &[piece], ids, wanted, &mut |rows, places, joined| {
                let category = joined.and_then(|joined| joined.category_id);
                let category = category.map(|id| self.names.category_code(id));
                let rows = SelectedRows { table, rows, places, category };
                let left_out = self.take_rows(&context, rows, |row| take(&mut result, row));
                self.without_times.fetch_add(left_out, Ordering::Relaxed);
                Ok(())
            })?;
            Ok(result)
        };
        pieces.into_par_iter().map(fold_piece).try_reduce(&start, |one, other| Ok(join(one, other)))
    }

    fn context<'u>(&self, unit: &'u RowUnit, tables: &[TimedTable]) -> Result<UnitContext<'u>, Failure> {
        let source = &self.run.database.tables;
        let kernels = match tables.contains(&TimedTable::Kernel) && unit.has_rows(rocpd::KERNEL_DISPATCH) {
            true => UnitNames::read_kernels(source, unit, |name| self.names.number(&name))?,
            false => ById::default(),
        };
        let mut context = UnitContext {
            unit,
            categories: EventCategories::read(source, unit, &self.names)?,
            kernels,
            steps: None,
            process: unit.processes.first().copied().filter(|_| !unit.is_unclaimed),
        };
        if self.run.selection.step.is_some() {
            context.steps = Some(self.read_steps(&context)?);
        }
        Ok(context)
    }

    /// Finds the ranges that mark steps.
    fn read_steps(&self, context: &UnitContext<'_>) -> Result<StepTimes, Failure> {
        let mut steps = StepTimes::default();
        let (source, table) = (&self.run.database.tables, TimedTable::Region);
        let mut known: HashMap<NameNumber, bool> = HashMap::new();
        let mut is_step =
            |name| *known.entry(name).or_insert_with(|| self.run.selection.is_step(&self.names.text(name)));
        source.read_rows(
            table.id(),
            context.unit.ids(table.id()),
            table.columns(),
            &mut |rows, places| {
                let rows = SelectedRows { table, rows, places, category: None };
                let _ = self.take_rows(context, rows, |row| {
                    if row.name.is_some_and(&mut is_step) {
                        steps.add(row.process, row.start, row.end);
                    }
                });
                Ok(())
            },
        )?;
        steps.sort();
        Ok(steps)
    }

    /// Passes the selected rows to `take`. Returns the number of rows without valid times, which it leaves out.
    fn take_rows(
        &self,
        context: &UnitContext<'_>,
        SelectedRows { table, rows, places, category }: SelectedRows<'_>,
        mut take: impl FnMut(TimedRow),
    ) -> u64 {
        let column = |name: &str| IntColumn::of(rows.column(name));
        let (starts, ends, events) = (column("start"), column("end"), column("event_id"));
        let (processes, agents) = (column("pid"), table.agent().map(column));
        let source_agents = table.source_agent().map(column);
        let names = rows.column(table.name());
        let mut naming = Naming { rows: self, context, cells: names, ids: IntColumn::of(names), last: None };
        let with_selection = |process: u32| (process, self.is_selected(process));
        let only_process = context.process.map(with_selection);
        let (mut near, mut without_times) = (0, 0);
        for i in places {
            let Some((start, end)) = row_times(starts, ends, i) else {
                without_times += 1;
                continue;
            };
            let (process, is_selected) = only_process.unwrap_or_else(|| {
                let process = processes.at(i).and_then(|id| self.places.get(&id).copied());
                with_selection(process.unwrap_or(u32::MAX))
            });
            if !is_selected || !self.is_time_selected(context, process, start) {
                continue;
            }
            let event = events.at(i);
            take(TimedRow {
                table,
                category: category.unwrap_or_else(|| context.categories.of(event, &mut near)),
                name: naming.name(table, i),
                process,
                start,
                end,
                event,
                agent: agents.and_then(|agents| agents.at(i)),
                source_agent: source_agents.and_then(|agents| agents.at(i)),
            });
        }
        without_times
    }

    /// Returns whether rows of the process at a place are selected.
    fn is_selected(&self, process: u32) -> bool {
        let selection = &self.run.selection;
        // Rows without a process belong to no rank and no node, and are selected with all of them.
        let is_known = process != u32::MAX;
        if is_known { selection.contains(process) } else { !selection.is_restricted() }
    }

    #[inline]
    fn is_time_selected(&self, context: &UnitContext<'_>, process: u32, start: i64) -> bool {
        self.run.selection.contains_time(start)
            && context.steps.as_ref().is_none_or(|steps| steps.contain(process, start))
    }
}

/// Finds the names of consecutive rows.
struct Naming<'n> {
    rows: &'n TimedRows<'n>,
    context: &'n UnitContext<'n>,
    cells: &'n Cells,
    ids: IntColumn<'n>,
    /// The last text, and its number.
    last: Option<(&'n [u8], NameNumber)>,
}

impl Naming<'_> {
    #[inline]
    fn name(&mut self, table: TimedTable, i: usize) -> Option<NameNumber> {
        match table {
            TimedTable::Region | TimedTable::Copy => self.rows.names.of_string(self.ids.at(i)?),
            TimedTable::Kernel => {
                let kernels = &self.context.kernels;
                kernels.at(kernels.place(self.ids.at(i))).copied()
            }
            TimedTable::Allocation => {
                let (Value::Text(text) | Value::Blob(text)) = self.cells.get(i) else { return None };
                if let Some((last, number)) = self.last
                    && last == text
                {
                    return Some(number);
                }
                let number = self.rows.names.number(&String::from_utf8_lossy(text));
                self.last = Some((text, number));
                Some(number)
            }
        }
    }
}
