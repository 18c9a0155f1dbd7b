//! The shard: the file of compressed event blocks that one collector writes, and the data model of rpd.
pub mod codec;
pub mod file;
pub mod identity;
pub mod model;
pub mod rank_set;
pub mod record;
pub mod shell_words;
pub mod size;

/// The `application_id` ("rpdm") in the header of every SQLite database that a merge writes. It is set in the first
/// page that the merge writes.
pub const MERGE_APPLICATION_ID: u32 = u32::from_be_bytes(*b"rpdm");

pub use file::{OpenError, Shard, ShardWriter, Version, WriteError};
