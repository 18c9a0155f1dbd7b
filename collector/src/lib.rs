//! The per-rank collector: runs a command and writes what its processes report into a shard.
//!
//! Two processes of the same program. The parent process starts the command, passes signals on and ends as
//! the command does. Its child, the collector process, drains the rings of the traced threads. In this
//! crate, a launcher is `srun` or `mpirun`, which starts the ranks. Rooms, lowest first; each imports only
//! rooms above it in this list:
//!
//! ```text
//! host/           this node: its clocks, CPUs and memory, and names that one process holds
//! launcher/       run and rank, from variables of the job's launcher (mpirun, srun)
//! run_folder      the folder of a run, below a root that other users may write to
//! log             warnings of a rank, in its log or on stderr
//! shard_output/   rows in, shard out: one thread
//! child/          the command: its program, library, signals and end
//! drain/          rings in, rows out
//! node_metrics/   counters of the node and of recorded threads
//! python_samples/ Python stacks of recorded threads, read from outside
//! clock_probe/    the clocks of nodes against each other
//! backend/        profilers that run the command, or run inside of it, and their files
//! command_line/   options
//! session/        one run, in two processes
//! doctor/         the same checks without running anything
//! run             arguments to exit status
//! ```

mod backend;
mod child;
mod clock_probe;
mod command_line;
mod doctor;
mod drain;
mod host;
mod launcher;
mod log;
mod node_metrics;
mod python_samples;
mod run;
mod run_folder;
mod session;
mod shard_output;

pub use command_line::CollectOptions;
pub use doctor::parser as doctor_parser;
pub use drain::RecordedThreads;
pub use host::machine::{clock_domain, node};
pub use launcher::SourceDefaults;
pub use node_metrics::{SystemConfig, SystemSampler};
pub use run::run;
pub use shard_output::{EventSpan, NameId, OutputBatch, OutputItem, ShardOutput, ShardPlace};
