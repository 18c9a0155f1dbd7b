//! Turns a merged database into items, one unit at a time.
//!
//! * `survey` is the first pass over a unit, which determines the tracks (`placement`, `layout`) and times.
//! * `unit`, `table_rows` and `row_to_item` are the second pass. `flows` finds the launching call of each kernel
//!   or copy. The remaining work is done for a chunk of events at a time, which limits memory.
//! * `event_details` reads what the events of a chunk contain (`text_columns`, `arg_values`, `call_stacks`).
//!   `collective_calls` recognises collectives, and `allocations` sums up allocated memory.

mod allocations;
mod arg_values;
mod call_stacks;
mod collective_calls;
mod event_details;
mod event_ids;
mod extdata;
mod flows;
mod layout;
mod placement;
mod recorded_flows;
mod row_to_item;
mod shared_labels;
mod string_texts;
mod survey;
mod table_rows;
mod text_columns;
mod unit;
mod unit_source;

use super::item::{
    FlowEnd, ItemExclusion, TableFacts, TraceItem, TraceSelection, UnitDictionary, UnitFacts, UnitLayout,
    table_place,
};
use super::message_arrows::unpack;
use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_run::{DRAWN_TABLES, IdRanges, RowUnit, RunDatabase, UnitNames};
use rpd_shard::model::{Schema, TableId};
use std::collections::HashMap;
use std::path::Path;

/// A merged database that is drawn. Every merge rank opens it separately; any number of threads may read it.
#[derive(Debug)]
pub struct JobRows {
    run: RunDatabase,
    selection: TraceSelection,
    window: Option<(i64, i64)>,
    /// Ends of messages by the keys of their regions, ascending.
    messages: Vec<(i64, u64)>,
}

/// Results of the first pass over a unit.
#[derive(Debug, Default)]
pub(crate) struct SurveyedUnit {
    names: UnitNames,
    tracks: HashMap<placement::TrackKey, u32>,
    /// Pieces with rows of the unit, by the index of their table in [`DRAWN_TABLES`].
    pieces: Vec<Vec<survey::PieceSeen>>,
}

impl SurveyedUnit {
    /// Returns the pieces of a table with rows of the unit.
    fn pieces(&self, table: TableId) -> &[survey::PieceSeen] {
        self.pieces.get(table_place(table)).map_or(&[], Vec::as_slice)
    }
}

/// Callback that receives the items of a unit, in the order of the database.
pub(crate) type TakeItem<'a> = dyn FnMut(&TraceItem<'_>) -> Result<(), Failure> + 'a;

/// Callback that receives the start of each item that will be drawn.
pub(crate) type TakeStart<'a> = dyn FnMut(i64) + 'a;

impl JobRows {
    /// Opens a merged database.
    ///
    /// # Errors
    /// [`Failure::input`], if the file cannot be read, is damaged, or was not written by rpd-merge.
    pub fn open(path: &Path, selection: &TraceSelection) -> Result<JobRows, Failure> {
        let run = RunDatabase::open(path, selection.ranks.as_deref())?;
        Ok(JobRows { run, selection: selection.clone(), window: None, messages: Vec::new() })
    }

    /// Returns the run.
    pub fn run(&self) -> &RunDatabase {
        &self.run
    }

    /// Returns the units in the order of the job (that of
    /// [`ProcessIdentity::order`](rpd_run::ProcessIdentity::order)). Each is drawn at once.
    pub fn units(&self) -> &[RowUnit] {
        &self.run.units
    }

    /// Returns the rows of unselected processes, which are in no unit. They must be added once to the
    /// [`UnitFacts`] of the units.
    pub fn unselected(&self) -> UnitFacts {
        let tables = DRAWN_TABLES.map(|table| {
            let rows = self.run.unselected.get(&table).copied().unwrap_or(0);
            TableFacts { rows, left_out: rows, ..TableFacts::default() }
        });
        UnitFacts { tables, ..UnitFacts::default() }
    }

    /// Returns whether ranks are selected, and none of them has a process.
    pub(crate) fn selects_unknown_ranks_only(&self) -> bool {
        self.selection.ranks.as_ref().is_some_and(|selected| selected.len() == self.unknown_ranks().len())
    }

    /// Returns the selected ranges of ranks that have no process, first and last of each.
    pub fn unknown_ranks(&self) -> Vec<(u32, u32)> {
        let ranks = self.run.ranks();
        let asked = self.selection.ranks.iter().flatten();
        let unknown = asked.filter(|range| !ranks.iter().any(|rank| range.contains(rank)));
        unknown.map(|range| (*range.start(), *range.end())).collect()
    }

    /// Returns the name and the number of rows of each carried table with rows. A trace cannot show them.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn carried_tables(&self) -> Result<Vec<(String, u64)>, Failure> {
        let tables = &self.run.tables;
        let sets = tables.database().map_or(&[][..], Database::table_sets);
        let stored = sets.iter().flat_map(|set| &set.tables);
        let mut found = Vec::new();
        for table in stored.filter(|table| Schema::builtin().get(table.table.id).is_none()) {
            let mut count = 0;
            tables.read_rows(table.table.id, &IdRanges::all(), &[], &mut |_, places| {
                count += places.len() as u64;
                Ok(())
            })?;
            if count > 0 {
                found.push((table.table.name.to_string(), count));
            }
        }
        Ok(found)
    }

    /// Restricts the items to those that touch `[from, to)`, ns in job time. The survey still covers all times.
    ///
    /// All counter values before `to` are passed on, because a value before `from` may be valid in the window.
    pub fn set_window(&mut self, window: Option<(i64, i64)>) {
        self.window = window;
    }

    /// Returns whether arrows between calls are requested.
    pub(crate) fn draws_messages(&self) -> bool {
        let includes = |what| self.selection.includes(what);
        includes(ItemExclusion::Flows) && includes(ItemExclusion::Regions)
    }

    /// Makes these units those that are read for the calls of the run.
    pub(crate) fn keep_units(&mut self, (first, end): (u64, u64)) {
        self.run.local_units.retain(|unit| (first..end).contains(&(*unit as u64)));
    }

    /// Sets the ends of messages, sorted: the key of the region, and what [`unpack`] takes.
    pub(crate) fn set_messages(&mut self, messages: Vec<(i64, u64)>) {
        self.messages = messages;
    }

    /// Returns the ends of messages at a region.
    #[inline]
    fn message_ends(&self, region: i64) -> impl Iterator<Item = FlowEnd> {
        let from = self.messages.partition_point(|(key, _)| *key < region);
        let own = self.messages.get(from..).unwrap_or_default();
        own.iter().take_while(move |(key, _)| *key == region).map(|(_, end)| unpack(*end))
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

    /// Makes the first pass over a unit, which determines its tracks. `each` receives the start of each item
    /// that will be drawn; a selection by category is ignored.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn survey(&self, unit: usize, each: &mut TakeStart<'_>) -> Result<UnitLayout, Failure> {
        let unit = self.run.units.get(unit);
        unit.map_or(Ok(UnitLayout::default()), |unit| survey::survey_unit(self, unit, each))
    }

    /// Makes the second pass, which passes on all items in the order of the database. Items with equal times on
    /// one track are in nesting order.
    ///
    /// `memory` is the number of further bytes that may be used.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read; the failures of `take`.
    pub fn items(
        &self,
        unit: usize,
        layout: &UnitLayout,
        memory: u64,
        take: &mut TakeItem<'_>,
    ) -> Result<(UnitFacts, UnitDictionary), Failure> {
        let found = self.run.units.get(unit);
        found.map_or(Ok(Default::default()), |found| unit::draw_unit(self, unit, found, layout, memory, take))
    }
}
