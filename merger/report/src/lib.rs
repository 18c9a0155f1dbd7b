//! Reports where the time of a run went, as text and for machines.
//!
//! [`CommandLine`] holds the options of a program call, and [`run()`] executes it: it opens the run, makes the report of
//! a subcommand, and prints it. A subcommand is a room that returns a `report::Report` of tables.

mod anomalies;
mod blame;
mod clocks;
mod collectives;
mod efficiency;
mod evidence;
mod gpu;
mod hang;
mod html;
mod input;
mod integrity;
mod kernel_class;
mod messages;
mod options;
mod overview;
mod path;
mod print;
mod ranks;
mod recording;
mod report;
mod rows;
mod run;
mod statistics;
mod steps;
mod summary;
mod waiting;
mod what_if;

pub use options::CommandLine;
pub use run::{ReportOutcome, run};
