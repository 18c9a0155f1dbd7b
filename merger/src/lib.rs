//! The merge of a run: from the files of all ranks to one RocPD database, or to traces of it.
//!
//! [`ProgramCall`] holds the options of a program call, [`run`] does what they say, and [`merge`] is the merge itself; the module of
//! that name reads as the algorithm. docs/ARCHITECTURE.md has the order of the rooms.

mod agree;
mod allocator;
mod budget;
mod cli;
mod epilog;
mod input;
mod job_user;
mod merge;
mod number;
mod output;
mod output_file;
mod report;
mod run;
mod strings;
mod trace_inputs;

pub use cli::{CommandLine, MergeArgs, ProgramCall};
pub use merge::{JobObservations, job_observations, merge};
pub use output::verify::verify_published;
pub use report::MergeReport;
pub use run::{RunOutcome, run};
