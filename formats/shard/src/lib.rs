//! The shard: compressed event blocks of one collector, and the data model of rpd.
pub mod model;
