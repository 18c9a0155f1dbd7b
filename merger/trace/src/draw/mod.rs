//! From a merged database to items, a unit at a time.
//!
//! * `units`: which rows are drawn at once; `read`: rows by their ids; `strings`, `names`: who is who;
//! * `extent`: when the job was; `survey`: the first pass, which tells the tracks (`places`, `layout`);
//! * `draw`, `spans`, `pen`: the second pass. `arrows` knows which call launched what; the rest is done for some events at
//!   a time, so that memory is bounded: `events` says what they tell (`texts`, `value`, `stacks`), `joint` which of the calls
//!   are collectives; `memory` sums up allocations;
//! * `others`: what is not drawn at all.

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

/// A merged database that is drawn. Every merge rank opens it by itself; any number of threads may read.
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
    /// Rows of all tables: how much work it is.
    pub weight: u64,
}

/// What the first pass over a unit found.
#[derive(Debug, Default)]
pub(crate) struct SurveyedUnit {
    names: UnitNames,
    tracks: HashMap<placement::TrackKey, u32>,
    /// The pieces with rows of the unit, by the place of their table in [`DRAWN`].
    pieces: Vec<Vec<survey::PieceSeen>>,
}

/// Takes the items of a unit, in the order of the database.
pub type TakeItem<'a> = dyn FnMut(&TraceItem<'_>) -> Result<(), Failure> + 'a;

/// Takes the times of what will be drawn: start, end, and what it is.
pub type TakeTimes<'a> = dyn FnMut(i64, i64, ItemSort) + 'a;

impl JobRows {
    /// Opens a merged database.
    ///
    /// # Errors
    /// [`Failure::input`], if it cannot be read, is damaged, or is no merge of ours.
    pub fn open(path: &Path, selection: &TraceSelection) -> Result<JobRows, Failure> {
        let run = RunDatabase::open(path, selection.ranks.as_deref())?;
        let plans = run.units.iter().map(|unit| UnitPlan { weight: unit.weight() }).collect();
        Ok(JobRows { run, selection: selection.clone(), plans, window: None })
    }

    /// The run.
    pub fn run(&self) -> &RunDatabase {
        &self.run
    }

    /// The units, in the order of the job (that of [`ProcessIdentity::order`](rpd_run::ProcessIdentity::order)).
    pub fn units(&self) -> &[UnitPlan] {
        &self.plans
    }

    /// The rows of processes that are not asked for and are in no unit: to be added once to the [`UnitFacts`] of the
    /// units.
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

    /// Ranges of ranks that are asked for and have no process, first and last of each.
    pub fn unknown_ranks(&self) -> Vec<(u32, u32)> {
        let ranks = self.run.ranks();
        let asked = self.selection.ranks.iter().flatten();
        let unknown = asked.filter(|range| !ranks.iter().any(|rank| range.contains(rank)));
        unknown.map(|range| (*range.start(), *range.end())).collect()
    }

    /// Tables that a trace has no place for, and their rows.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn others(&self) -> Result<Vec<(String, u64)>, Failure> {
        undrawn_tables::others(&self.run.tables)
    }

    /// From now on only items that touch `[from, to)` are handed on, and all counter values before `to`, since one that
    /// is before `from` may be valid in the window. Ns in the clock of the job; the survey is of all times.
    pub fn set_window(&mut self, window: Option<(i64, i64)>) {
        self.window = window;
    }

    /// First and last time of the job, as far as `rank` of `ranks` reads it; `None` where the surveys tell it, since
    /// nothing is left out.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn extent(&self, rank: usize, ranks: usize) -> Result<Option<(i64, i64)>, Failure> {
        match self.selection.ranks.is_none() && self.selection.exclude.is_empty() {
            true => Ok(None),
            false => self.run.extent(rank, ranks),
        }
    }

    /// The first pass over a unit: what tracks it needs. `each` gets the times of all that will be drawn; an end may be
    /// before its start, and a selection by category is not looked at.
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

    /// The second pass: all items, in the order of the database. Those with equal times and one track are in the order
    /// in which they nest.
    ///
    /// `dictionary` is a new one; it is complete when this ends. `memory` is how many bytes may be taken besides it.
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
