//! Legacy `.rpd` files of rocmProfileData.
//!
//! * [`translate`]: a `.rpd` of schema 2 or 3 as a shard, which a merge reads like any other.
//! * [`peek`]: the processes that are in it.
//! * [`write()`]: a `.rpd` from a merged RocPD database, with AMD's ids for several nodes.

mod quiet;
mod read;
mod write;

pub use quiet::NotQuiet;
pub use read::{Options, TranslateError, Translation, peek, translate};
pub use write::{Count, WriteError, Written, write};

/// Distance of the process and thread ids of two nodes in a merged file.
pub const PID_STRIDE: i64 = 10_000_000;
/// Distance of the GPU and queue numbers of two nodes in a merged file.
pub const GPU_STRIDE: i64 = 1_000;
