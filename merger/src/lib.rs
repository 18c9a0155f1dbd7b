//! Merges the shards of a job into one RocPD database.
