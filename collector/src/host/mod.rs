//! This node as the collector finds it: its identity and clocks, its memory limit, and claims.
//!
//! This room knows no run, rank or shard.

pub(crate) mod cgroup;
pub(crate) mod claim;
pub(crate) mod cpus;
pub(crate) mod machine;
pub(crate) mod process_stat;
pub(crate) mod random;
pub(crate) mod utc;
