//! This node as the collector finds it: its identity and clocks, its processes, and claims.
//!
//! This room knows no run, rank or shard.

pub(crate) mod bounded_read;
pub(crate) mod claim;
pub(crate) mod cpus;
pub(crate) mod descriptors;
pub(crate) mod event_flag;
pub(crate) mod machine;
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod tick_source;
pub(crate) mod utc;
