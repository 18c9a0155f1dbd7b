//! The shard: compressed event blocks of one collector, and the data model of rpd.
pub mod codec;
pub mod file;
pub mod identity;
pub mod model;
pub mod rank_set;
pub mod record;
pub mod size;

pub use file::{OpenError, Shard, ShardWriter, Version, WriteError};
