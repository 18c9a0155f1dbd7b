//! Merges the files of all ranks of a run into one RocPD database, or into traces of it.
//!
//! [`ProgramCall`] holds the options of a program call, and [`run()`] executes it. [`merge()`] is the merge itself;
//! the module of that name reads as the algorithm. docs/ARCHITECTURE.md contains the order of the modules.

mod agree;
mod allocator;
mod budget;
mod epilog;
mod input;
mod job_user;
mod merge;
mod number;
mod options;
mod output;
mod partial_output;
mod run;
mod run_inputs;
mod strings;
mod summary;
mod temporary_merge;
mod trace_inputs;
mod unwritten_merge;

pub use budget::{MemoryBudget, start_threads};
pub use merge::{JobObservations, job_observations, merge};
pub use options::{CommandLine, MergeArgs, ProgramCall};
pub use output::verify::verify_published;
pub use run::{RunOutcome, run};
pub use run_inputs::RunInputs;
pub use summary::MergeReport;
