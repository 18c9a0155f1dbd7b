//! Reads the communication calls of a run: calls to MPI, the messages and collectives that they take part in, and the
//! work between them.
//!
//! [`RunCalls`] is the input of the analysis in rpd-graph, with the names that rpd-graph does not need. The calls of
//! a thread do not overlap: of calls inside of one another the outermost counts, and repeated polls are one call.
//!
//! ```text
//! rows of a process   regions -> calls, ranges      events -> stack ids      args -> values      samples
//!                     sorted by thread and start \____________ by event id ____________/
//! each thread         sweep: calls, work between them by the innermost range, operations
//! the run             numbers of labels and communicators, members, steps, what is missing
//! ```

mod analysis_memory;
mod blocked_shares;
mod call_file;
mod call_gaps;
mod call_values;
mod communicators;
mod cpu_shares;
mod few_intervals;
mod functions;
mod gpu_collectives;
mod gpu_metrics;
mod gpu_rows;
mod gpu_streams;
mod id_index;
mod joined_calls;
mod labels;
mod merged_metadata;
mod missing_calls;
mod notes;
mod operations;
mod persistent;
mod process_facts;
mod python_samples;
mod python_stacks;
mod read_calls;
mod read_options;
mod region_names;
mod repeated_messages;
mod repetition;
mod run_calls;
mod run_numbers;
mod step_ranges;
mod steps;
mod thread_calls;
mod thread_cpus;
mod thread_work;
mod unit_calls;
mod unit_rows;
mod window_ends;
mod work_amounts;

pub use analysis_memory::AnalysisMemory;
pub use call_file::{CallFile, CallFileError};
pub use gpu_rows::{COMMUNICATING, has_collective_kernels};
pub use labels::CallLabel;
pub use missing_calls::MissingCalls;
pub use python_samples::PythonSamples;
pub use read_options::ReadOptions;
pub use run_calls::{CallProcess, RunCalls};
pub use steps::{StepKind, StepSource, mark_steps_without_ranges};
pub use thread_cpus::ThreadCpus;
