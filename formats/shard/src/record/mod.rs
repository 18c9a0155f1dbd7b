//! Side records of a shard: processes, clocks and losses.
//!
//! TRIPWIRE: every struct here is stored in shards with bincode. Adding, removing, reordering or retyping a field
//! changes the format: increment [`crate::Version`] and keep reading the old version.

mod clock;
mod loss;
mod process;
mod profiler_loss;
mod selection;
pub mod wire;

pub use clock::{Clock, ClockDomain, ClockSet, Probe, ProbeBurst, is_wall_time};
pub use loss::{Ledger, Loss, LossCause};
pub use process::{COMMAND_SOURCE, Node, Process, ProcessExit, RunIdentity, SYSTEM_SOURCE};
pub use profiler_loss::{ProfilerLoss, ProfilerLossReason};
pub use selection::Selection;
