//! Legacy `.rpd` files of rocmProfileData.
//!
//! * [`translate`]: a `.rpd` of schema 2 or 3 as a shard, which a merge reads like any other.
//! * [`peek`]: the processes that are in it.
//! * [`write()`]: a `.rpd` from a merged RocPD database, with AMD's ids for several nodes.

mod quiet;
mod read;
mod write;

pub use quiet::NotQuiet;
pub use read::{RpdOptions, RpdReadError, RpdTranslation, is_merge, peek, translate};
pub use write::{RpdWriteError, WrittenCount, WrittenRpd, write};

use rpd_shard::record::Clock;

/// Tag of the metadata with the name of the clock that all times are on.
const CLOCK_TAG: &str = "rpd.clock";
/// The clocks that it may name.
const CLOCKS: [Clock; 3] = [Clock::Boottime, Clock::Monotonic, Clock::Realtime];
/// Tag and value of the metadata of a file whose nodes have one time: that clock is one of one node.
const ONE_TIME_TAG: &str = "rpd.clock.one_time";
const ONE_TIME: &str = "all nodes";

/// Distance of the process and thread ids of two nodes in a merged file.
pub const PID_STRIDE: i64 = 10_000_000;
/// Distance of the GPU and queue numbers of two nodes in a merged file.
pub const GPU_STRIDE: i64 = 1_000;
