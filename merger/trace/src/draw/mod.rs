//! Turns a merged database into items, one unit at a time.
//!
//! * `survey` is the first pass over a unit, which determines the tracks (`placement`, `layout`) and times.
//! * `unit`, `table_rows` and `row_to_item` are the second pass. `flows` finds the launching call of each kernel
//!   or copy. The remaining work is done for a chunk of events at a time, which limits memory.
//! * `event_details` reads what the events of a chunk contain (`text_columns`, `arg_values`, `call_stacks`).
//!   `collective_calls` recognises collectives, and `allocations` sums up allocated memory.
//! * `undrawn_tables` counts rows of tables that are not drawn.

mod allocations;
mod arg_values;
mod call_stacks;
mod collective_calls;
mod event_details;
mod flows;
mod layout;
mod members;
mod placement;
mod row_to_item;
mod shared_labels;
mod string_texts;
mod survey;
mod table_rows;
mod text_columns;
mod undrawn_tables;
mod unit;

use super::item::{ItemSort, TableFacts, TraceItem, TraceSelection, UnitDictionary, UnitFacts, UnitLayout};
use rpd_console::Failure;
use rpd_run::{RunDatabase, UnitNames};
use rpd_shard::model::{TableId, rocpd};
use std::collections::HashMap;
use std::path::Path;

/// A merged database that is drawn. Every merge rank opens it separately; any number of threads may read it.
#[derive(Debug)]
pub struct JobRows {
    run: RunDatabase,
    selection: TraceSelection,
    plans: Vec<UnitPlan>,
    window: Option<(i64, i64)>,
}

/// A part of the job that is drawn at once: a process, or all rows that no process claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitPlan {
    /// Number of rows in all tables, as a measure of the work.
    pub weight: u64,
}

/// Results of the first pass over a unit.
#[derive(Debug, Default)]
pub(crate) struct SurveyedUnit {
    names: UnitNames,
    tracks: HashMap<placement::TrackKey, u32>,
    /// Pieces with rows of the unit, by the index of their table in [`DRAWN`](rpd_run::DRAWN).
    pieces: Vec<Vec<survey::PieceSeen>>,
}

/// Callback that receives the items of a unit, in the order of the database.
pub type TakeItem<'a> = dyn FnMut(&TraceItem<'_>) -> Result<(), Failure> + 'a;

/// Callback that receives the start, the end and the sort of each item that will be drawn.
pub type TakeTimes<'a> = dyn FnMut(i64, i64, ItemSort) + 'a;

impl JobRows {
    /// Opens a merged database.
    ///
    /// # Errors
    /// [`Failure::input`], if the file cannot be read, is damaged, or was not written by rpd-merge.
    pub fn open(path: &Path, selection: &TraceSelection) -> Result<JobRows, Failure> {
        let run = RunDatabase::open(path, selection.ranks.as_deref())?;
        let plans = run.units.iter().map(|unit| UnitPlan { weight: unit.weight() }).collect();
        Ok(JobRows { run, selection: selection.clone(), plans, window: None })
    }

    /// Returns the run.
    pub fn run(&self) -> &RunDatabase {
        &self.run
    }

    /// Returns the units in the order of the job (that of
    /// [`ProcessIdentity::order`](rpd_run::ProcessIdentity::order)).
    pub fn units(&self) -> &[UnitPlan] {
        &self.plans
    }

    /// Returns the rows of unselected processes, which are in no unit. They must be added once to the
    /// [`UnitFacts`] of the units.
    pub fn unasked(&self) -> UnitFacts {
        let rows = |table: TableId| {
            let rows = self.run.unselected.get(&table).copied().unwrap_or(0);
            TableFacts { rows, left_out: rows, ..TableFacts::default() }
        };
        UnitFacts {
            regions: rows(rocpd::REGION),
            kernels: rows(rocpd::KERNEL_DISPATCH),
            copies: rows(rocpd::MEMORY_COPY),
            allocations: rows(rocpd::MEMORY_ALLOCATE),
            samples: rows(rocpd::SAMPLE),
            values: rows(rocpd::PMC_EVENT),
            args: rows(rocpd::ARG),
            ..UnitFacts::default()
        }
    }

    /// Returns the selected ranges of ranks that have no process, first and last of each.
    pub fn unknown_ranks(&self) -> Vec<(u32, u32)> {
        let ranks = self.run.ranks();
        let asked = self.selection.ranks.iter().flatten();
        let unknown = asked.filter(|range| !ranks.iter().any(|rank| range.contains(rank)));
        unknown.map(|range| (*range.start(), *range.end())).collect()
    }

    /// Returns tables that a trace cannot show, with their numbers of rows.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn others(&self) -> Result<Vec<(String, u64)>, Failure> {
        undrawn_tables::others(&self.run.tables)
    }

    /// Restricts the items to those that touch `[from, to)`, ns in job time. The survey still covers all times.
    ///
    /// All counter values before `to` are passed on, because a value before `from` may be valid in the window.
    pub fn set_window(&mut self, window: Option<(i64, i64)>) {
        self.window = window;
    }

    /// Returns the first and the last time of the rows that `rank` of `ranks` reads. Returns `None` if nothing
    /// is excluded, because the surveys then determine the times.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn extent(&self, rank: usize, ranks: usize) -> Result<Option<(i64, i64)>, Failure> {
        match self.selection.ranks.is_none() && self.selection.exclude.is_empty() {
            true => Ok(None),
            false => self.run.extent(rank, ranks),
        }
    }

    /// Makes the first pass over a unit, which determines its tracks. `each` receives the times of all items
    /// that will be drawn. An end may be before its start, and a selection by category is ignored.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn survey(&self, unit: usize, each: &mut TakeTimes<'_>) -> Result<UnitLayout, Failure> {
        let Some(unit) = self.run.units.get(unit) else { return Ok(UnitLayout::default()) };
        survey::survey(
            &self.run.tables,
            unit,
            (&self.run.processes, &self.run.strings),
            &self.selection,
            each,
        )
    }

    /// Makes the second pass, which passes on all items in the order of the database. Items with equal times on
    /// one track are in nesting order.
    ///
    /// `dictionary` must be new; it is complete when the pass ends. `memory` is the number of further bytes that
    /// may be used.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read; the failures of `take`.
    pub fn items(
        &self,
        unit: usize,
        layout: &UnitLayout,
        dictionary: &mut UnitDictionary,
        memory: u64,
        take: &mut TakeItem<'_>,
    ) -> Result<UnitFacts, Failure> {
        let Some(found) = self.run.units.get(unit) else { return Ok(UnitFacts::default()) };
        unit::draw(self, unit, found, layout, dictionary, memory, take)
    }
}
