//! One run of rpd-collect.
//!
//! ```text
//! rpd-collect          starts both, passes signals and the exit status on
//!   |- the command
//!   `- the collector   drains the rings, writes the shard
//! ```
//!
//! With two processes, a collector that is killed, stopped or out of memory affects neither the command nor
//! its exit status.

mod announcement;
mod busy;
mod collecting;
mod command_end;
mod command_record;
mod command_under_profiler;
mod control;
mod empty_result;
mod identity;
mod launch;
mod preloaded;
mod prepare;
mod profiler_launch;
mod recorders;
mod run;
mod spawn;
mod start_message;
mod unrecorded;
mod variables;
mod watched_process;

pub(crate) use announcement::announced;
pub(crate) use collecting::main as collect;
pub(crate) use identity::SessionIdentity;
pub(crate) use prepare::CommandSession;
pub(crate) use spawn::COLLECT;
pub(crate) use unrecorded::{MIN_CGROUP_BYTES, run_unrecorded};
pub(crate) use variables::variables;
