//! Synthetic runs: jobs in which every row, clock and name is made up from a seed, and therefore known.
//!
//! ```text
//! SyntheticRun --plan()--> Run: nodes with their clocks, ranks, processes
//!                           | rows(process)
//!                           v
//!                          ProcessRows: naive rows, symbolic references, true times
//!                           |                          |
//!               write_shards(run, dir)        write_rocpd(run, dir)
//! ```
//!
//! Rows of a process are made when they are asked for, always the same ones, so that a run of many
//! gigabytes never is in memory at once.

mod bulk;
mod cell;
mod clock;
mod communication;
mod databases;
mod expand;
mod gpu;
mod names;
mod native;
mod numbered;
mod probes;
mod process;
mod random;
mod run;
mod shards;

pub use bulk::{BulkRun, write_bulk_rocpd, write_bulk_shards};
pub use cell::{JsonCell, ModelCell, Row};
pub use clock::{ModelClock, RUN_START};
pub use databases::write_rocpd;
pub use expand::expand;
pub use native::{NativeCall, NativeRows};
pub use numbered::{IdNumbering, NumberedRow, columns, number};
pub use process::ProcessRows;
pub use random::RandomSource;
pub use run::{ModelRank, PlannedProcess, Run, SyntheticNode, SyntheticRun};
pub use shards::{
    ObservedClocks, process_record, run_identity, write_shard, write_shard_that_saw, write_shards,
};
