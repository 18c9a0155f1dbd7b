//! From a merged database to items, a unit at a time.

use super::item::{Dictionary, Facts, Item, Selection, Sort, UnitLayout};
use crate::failure::Failure;
use rpd_rocpd::read::Database;
use std::path::Path;

/// A merged database that is drawn. Every merge rank opens it by itself; any number of threads may read.
#[derive(Debug)]
pub struct JobRows {
    database: Database,
    selection: Selection,
    units: Vec<UnitPlan>,
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
pub(in crate::trace) struct Seen {}

/// Takes the items of a unit, in the order of the database.
pub type TakeItem<'a> = dyn FnMut(&Item<'_>) -> Result<(), Failure> + 'a;

/// Takes the times of what will be drawn: start, end, and what it is.
pub type TakeTimes<'a> = dyn FnMut(i64, i64, Sort) + 'a;

impl JobRows {
    /// Whether a file is a database that [`JobRows::open`] can read as it is: a merge of ours, in one set of tables.
    pub fn is_merged(path: &Path) -> bool {
        Database::open(path).is_ok_and(
            |database| matches!(database.spaces(), [space] if space.tags.contains_key("rpd.version")),
        )
    }

    /// Opens a merged database.
    ///
    /// # Errors
    /// [`Failure::Input`], if it cannot be read, is damaged, or is no merge of ours.
    pub fn open(path: &Path, selection: &Selection) -> Result<JobRows, Failure> {
        let database = Database::open(path).map_err(|error| Failure::Input(error.to_string()))?;
        Ok(JobRows { database, selection: selection.clone(), units: Vec::new(), window: None })
    }

    /// The units, in the order of the job (that of [`DrawnProcess::order`](super::item::DrawnProcess::order)).
    pub fn units(&self) -> &[UnitPlan] {
        &self.units
    }

    /// The run that was recorded.
    pub fn run_id(&self) -> &str {
        self.tag("rpd.run_id")
    }

    /// Name of the clock of all times: `boottime of the reference node`.
    pub fn clock(&self) -> &str {
        self.tag("rpd.clock")
    }

    /// What the times of the job need to become ns since 1970, where a clock told.
    pub fn realtime_minus_job_ns(&self) -> Option<i64> {
        self.tag("rpd.clock.realtime_minus_boottime_ns").parse().ok()
    }

    fn tag(&self, name: &str) -> &str {
        self.database.spaces().first().and_then(|space| space.tags.get(name)).map_or("", String::as_str)
    }

    /// From now on only items that touch `[from, to)` are handed on, and all counter values before `to`, since one that
    /// is before `from` may be valid in the window. Ns in the clock of the job; the survey is of all times.
    pub fn set_window(&mut self, window: Option<(i64, i64)>) {
        self.window = window;
    }

    /// The first pass over a unit: what tracks it needs. `each` gets the times of all that will be drawn; an end may be
    /// before its start, and a selection by category is not looked at.
    ///
    /// # Errors
    /// [`Failure::Input`], if rows cannot be read.
    pub fn survey(&self, unit: usize, each: &mut TakeTimes<'_>) -> Result<UnitLayout, Failure> {
        let _ = (unit, each, &self.selection);
        Ok(UnitLayout::default())
    }

    /// The second pass: all items, in the order of the database. Those with equal times and one track are in the order
    /// in which they nest.
    ///
    /// `dictionary` is a new one; it is complete when this ends. `memory` is how many bytes may be taken besides it.
    ///
    /// # Errors
    /// [`Failure::Input`], if rows cannot be read; the failures of `take`.
    pub fn items(
        &self,
        unit: usize,
        layout: &UnitLayout,
        dictionary: &mut Dictionary,
        memory: u64,
        take: &mut TakeItem<'_>,
    ) -> Result<Facts, Failure> {
        let _ = (unit, layout, dictionary, memory, take, self.window);
        Ok(Facts::default())
    }
}
