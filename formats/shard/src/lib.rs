//! The shard: compressed event blocks of one collector, and the data model of rpd.
pub mod codec;
pub mod file;
pub mod identity;
pub mod model;
pub mod rank_set;
pub mod record;
pub mod size;

/// The `application_id` in the header of every SQLite database that a merge makes, from its first page on: "rpdm".
pub const MERGE_APPLICATION_ID: u32 = u32::from_be_bytes(*b"rpdm");

pub use file::{OpenError, Shard, ShardWriter, Version, WriteError};
