//! This node as the collector finds it: its identity and clocks, memory limits, and names that one process holds.
//!
//! Nothing here knows a run, a rank or a shard.

pub(crate) mod cgroup;
pub(crate) mod claim;
pub(crate) mod cpus;
pub(crate) mod machine;
pub(crate) mod process_stat;
pub(crate) mod random;
pub(crate) mod utc;
