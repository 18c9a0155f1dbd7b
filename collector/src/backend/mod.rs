//! Profilers that run the command, or run inside of it, and whose files become shards of the rank.
//!
//! ```text
//! --backend ──choice──> which ones, and whether they can be together
//!             plan      what they need: words in front of the command, variables, libraries
//!             start     runs the command in their hands, or without them if they do not start it
//!             harvest   afterwards: their files, from node-local scratch to shards beside the rank's own
//! ```
//!
//! * [`choice`]: what was asked for, and `auto`.
//! * `rocprofv3`, `rocprof_sys`, `rpd_tracer`, `torch`, `debug_agent`: one profiler each, as its documents describe it.
//! * `tool`: finding a program of ROCm, and asking it what it can do.
//! * [`scratch`]: the folder on the node that they write to, and who looks after it.
//! * [`start`]: what a profiler starts in the place of the command. `mark`: who starts the command, once, and how it ended.
//! * `processes`: those of a profiler, to be killed, and never those of the command.
//! * `found`: the files that it left, told apart by their names.
//! * [`harvest`]: runs in the collector process when the command has ended. `unrecorded_rows`: which profilers lost rows.

pub mod choice;
mod debug_agent;
mod found;
pub mod harvest;
pub(crate) mod mark;
mod plan;
pub(crate) mod processes;
mod rocprof_sys;
mod rocprofv3;
mod rpd_tracer;
pub mod scratch;
pub mod start;
mod tool;
mod torch;
mod unrecorded_rows;

pub use choice::{Backend, BackendChoice, ChoiceError, ResolvedBackends};
pub use plan::{Asked, GpuRecording, Plan, plan};
pub(crate) use tool::ask;
pub use unrecorded_rows::ProfilerEnding;
