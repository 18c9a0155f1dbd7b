//! The per-rank collector: runs a command and writes what its processes report into a shard.
