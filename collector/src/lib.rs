//! The per-rank collector: runs a command and writes what its processes report into a shard.
//!
//! Two processes: one starts the command, passes signals on and ends as it does; the other collects.
//!
//! ```text
//! traced threads --rings--> drain (one thread) --batches--> shard_output (one thread) --> shard
//! ```
//!
//! * [`command_line`]: what was typed.
//! * [`launcher`]: which run, which rank: from the launcher's variables.
//! * [`session`]: the whole of one run, from the socket to the exit status, in two processes.
//! * [`backend`]: profilers that run the command, or inside of it, and what becomes of their files.
//! * [`child`]: the command: starting it, its library, its signals, its end.
//! * [`drain`]: rings in, rows out.
//! * [`shard_output`]: rows in, shard out.
//! * [`node_metrics`]: counters of the node.
//! * [`clock_probe`]: the clocks of nodes against each other.
//! * [`host`]: this node: its clocks, the memory that the job may have, one collector per node for what needs to be done once.
//! * [`log`]: where the collector says what there is to say.
//! * [`doctor`]: what would happen, and whether everything is there that it takes.

pub mod backend;
pub mod child;
pub mod clock_probe;
pub mod command_line;
pub mod doctor;
pub mod drain;
pub mod host;
pub mod launcher;
pub mod log;
pub mod node_metrics;
mod run_folder;
pub mod session;
pub mod shard_output;
