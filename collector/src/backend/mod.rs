//! Profilers that start the command or run inside it. Their files become shards of the rank.
//!
//! ```text
//! --backend ──choice──> which ones, and whether they can run together
//!             prepare   what they need: command line of the profiler, variables, libraries
//!             start     lets them run the command, or runs it without them if they do not start it
//!             harvest   afterwards: their files, from node-local scratch to shards beside the rank's own
//! ```
//!
//! * [`choice`]: the value of `--backend`, and `auto`.
//! * `request`: what the user requested, and the plan for starting the command.
//! * `profilers`: one file per profiler.
//! * `rocm_tools`: finds a program of ROCm and queries its features.
//! * [`scratch`]: the folder on the node for the profilers' files, and its owner.
//! * [`start`]: the program that a profiler starts in place of the command. `start_mark`: starts the command
//!   exactly once, and records how it ended.
//! * `processes`: kills the processes of a profiler, and never those of the command.
//! * `profiler_files`: sorts the files of a profiler by name.
//! * [`harvest`]: imports the files in the collector process after the command has ended. It also records
//!   which profilers lost rows.

pub(crate) mod choice;
pub(crate) mod harvest;
mod prepare;
pub(crate) mod processes;
mod profiler_files;
mod profilers;
mod request;
mod rocm_tools;
pub(crate) mod scratch;
pub(crate) mod start;
pub(crate) mod start_mark;

pub(crate) use choice::{BackendChoice, BackendChoiceError, BackendKind, ResolvedBackends};
pub(crate) use harvest::ProfilerOutcome;
pub(crate) use prepare::plan;
pub(crate) use request::{BackendPlan, BackendRequest, GpuRecording, HarvestRequest};
pub(crate) use rocm_tools::query;
