//! Profilers that run the command, or run inside of it, and whose files become shards of the rank.
//!
//! ```text
//! --backend ──choice──> which ones, and whether they can be together
//!             prepare   what they need: words in front of the command, variables, libraries
//!             start     runs the command in their hands, or without them if they do not start it
//!             harvest   afterwards: their files, from node-local scratch to shards beside the rank's own
//! ```
//!
//! * [`choice`]: what was asked for, and `auto`.
//! * `request`: what was asked of them, and what the command is started with.
//! * `profilers`: one file each, as its documents describe it.
//! * `rocm_tools`: finding a program of ROCm, and asking it what it can do.
//! * [`scratch`]: the folder on the node that they write to, and who looks after it.
//! * [`start`]: what a profiler starts in the place of the command. `start_mark`: who starts the command, once, and how it ended.
//! * `processes`: those of a profiler, to be killed, and never those of the command.
//! * `profiler_files`: the files that it left, told apart by their names.
//! * [`harvest`]: runs in the collector process when the command has ended. It also records which profilers lost rows.

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
pub(crate) use harvest::ProfilerEnding;
pub(crate) use prepare::plan;
pub(crate) use request::{BackendPlan, BackendRequest, GpuRecording, HarvestRequest};
pub(crate) use rocm_tools::ask;
