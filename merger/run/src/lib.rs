//! Reads a run: its processes, names, strings and rows in job time.
//!
//! [`RunDatabase`] is a run that is open for reading: a merged database, or another [`RowSource`] with the same rows.
//! Rows are read by [`RowUnit`]: the rows of one process, or all rows that no process claims. Any number of threads may
//! read.

mod database_rows;
mod extent;
mod names;
mod processes;
mod row_source;
mod row_times;
mod strings;
mod tables;
mod units;

pub use names::{ById, ComputeAgent, UnitNames};
pub use processes::{ProcessIdentity, RunProcess};
pub use row_source::{JoinedEvents, RowSource};
pub use row_times::{is_row_time, row_times};
pub use strings::RunStrings;
pub use tables::{IdRanges, RunTables};
pub use units::{DRAWN_TABLES, RowUnit};

use database_rows::{DatabaseRows, unreadable};
use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_shard::model::TableId;
use rpd_shard::record::{Clock, is_wall_time};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::path::Path;

/// A run that is open for reading.
#[derive(Debug)]
pub struct RunDatabase {
    /// Its tables.
    pub tables: RunTables,
    /// Its strings, which all processes share.
    pub strings: RunStrings,
    /// Its processes, in the order of their ids.
    pub processes: Vec<RunProcess>,
    /// Its rows, divided into units, in the order of [`ProcessIdentity::order`].
    pub units: Vec<RowUnit>,
    /// Indices of the units that are read here: all, unless several merge ranks share them.
    pub local_units: Vec<usize>,
    /// Number of rows of each table that belong to unselected processes and are in no unit.
    pub unselected: HashMap<TableId, u64>,
}

impl RunDatabase {
    /// Returns whether [`RunDatabase::open`] can read a file: a merged database with a single table set.
    pub fn is_merged(path: &Path) -> bool {
        Database::open(path)
            .is_ok_and(|database| matches!(database.table_sets(), [set] if set.is_first_merged()))
    }

    /// Opens a merged database with the rows of the selected `ranks` (`None` selects all) and of processes
    /// without a rank.
    ///
    /// # Errors
    /// [`Failure::input`], if the file cannot be read, is damaged, or is not a merged database.
    pub fn open(path: &Path, ranks: Option<&[RangeInclusive<u32>]>) -> Result<RunDatabase, Failure> {
        let database = Database::open(path).map_err(|error| unreadable(&error))?;
        let refused = |problem: String| Failure::input(format!("{}: {problem}", path.display()));
        if let Some(damage) = database.damage().first() {
            return Err(refused(format!("{damage}; merge its inputs again")));
        }
        match database.table_sets() {
            [set] if set.is_first_merged() => {}
            [_] => return Err(refused("no merge of rpd-merge; merge it first".to_owned())),
            _ => {
                let problem = "has several sets of tables; merge it to one with --layout merged";
                return Err(refused(problem.to_owned()));
            }
        }
        RunDatabase::from_source(Box::new(DatabaseRows::new(database)), ranks)
    }

    /// Opens the rows of a source, as [`RunDatabase::open`] opens those of a merged database.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read or contradict themselves.
    pub fn from_source(
        source: Box<dyn RowSource>,
        ranks: Option<&[RangeInclusive<u32>]>,
    ) -> Result<RunDatabase, Failure> {
        let mut tables = RunTables::new(source);
        let strings = RunStrings::read(&tables)?;
        let processes = processes::read_processes(&tables, ranks)?;
        let (units, unselected) = units::divide_rows(&tables, &processes)?;
        tables.divide_pieces(units.len());
        let local_units = (0..units.len()).filter(|unit| tables.has_unit(&units[*unit])).collect();
        Ok(RunDatabase { tables, strings, processes, units, local_units, unselected })
    }

    /// Shares the units among `ranks` merge ranks that can read all of them, so that each has about as many rows. Keeps
    /// those of merge rank `rank`.
    pub fn share_units(&mut self, rank: usize, ranks: usize) {
        let weights: Vec<u128> = self.units.iter().map(|unit| u128::from(unit.weight())).collect();
        let all: u128 = weights.iter().sum();
        let mut before = 0;
        let mut owner = |weight: &u128| {
            let middle = before + weight / 2;
            before += weight;
            ((middle * ranks as u128) / all.max(1)).min(ranks.saturating_sub(1) as u128) as usize
        };
        let owners: Vec<usize> = weights.iter().map(&mut owner).collect();
        self.local_units.retain(|unit| owners.get(*unit) == Some(&rank));
    }

    /// Returns the ranks of the run, ascending.
    pub fn ranks(&self) -> Vec<u32> {
        let ranks: BTreeSet<u32> = self.processes.iter().filter_map(|process| process.info.rank).collect();
        ranks.into_iter().collect()
    }

    /// Returns the run id.
    pub fn run_id(&self) -> &str {
        self.tables.tag("rpd.run_id")
    }

    /// Returns the name of the clock of all times: `CLOCK_BOOTTIME of the reference node`.
    pub fn clock(&self) -> &str {
        self.tables.tag("rpd.clock")
    }

    /// Returns what must be added to job time to get ns since 1970, if it is known. `first` is the first time of
    /// the run.
    ///
    /// Times from profilers that record the wall clock need no correction, if `first` is a plausible wall-clock
    /// time.
    pub fn realtime_minus_job_ns(&self, first: i64) -> Option<i64> {
        let measured = self.tables.tag("rpd.clock.realtime_minus_boottime_ns").parse().ok();
        let is_wall_clock = self.clock().starts_with(Clock::Realtime.name()) && is_wall_time(first);
        measured.or(is_wall_clock.then_some(0))
    }

    /// Returns the first and the last time of the rows that merge rank `rank` of `ranks` reads, ns in job time.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read.
    pub fn extent(&self, rank: usize, ranks: usize) -> Result<Option<(i64, i64)>, Failure> {
        extent::extent(&self.tables, rank, ranks)
    }
}
