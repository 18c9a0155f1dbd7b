//! Reads and writes legacy `.rpd` files of rocmProfileData.
//!
//! * [`translate`] converts a `.rpd` of schema 2 or 3 to a shard, which a merge reads like any other;
//! * [`read_processes`] returns the processes of a `.rpd`;
//! * [`write()`] converts a merged RocPD database to a `.rpd`, with AMD's ids for several nodes.

mod quiet;
mod read;
mod write;

pub use quiet::NotQuiet;
pub use read::{RpdOptions, RpdReadError, RpdTranslation, is_merge, read_processes, translate};
pub use write::{RpdWriteError, WrittenCount, WrittenRpd, write};

use rpd_shard::record::Clock;

/// Metadata tag with the name of the clock of all times.
const CLOCK_TAG: &str = "rpd.clock";
/// The valid values of [`CLOCK_TAG`].
const CLOCKS: [Clock; 3] = [Clock::Boottime, Clock::Monotonic, Clock::Realtime];
/// Metadata tag and value of a file in which all nodes share one time: the clock is that of one node.
const ONE_TIME_TAG: &str = "rpd.clock.one_time";
const ONE_TIME: &str = "all nodes";

/// Distance between the process and thread ids of two nodes in a merged file.
pub const PID_STRIDE: i64 = 10_000_000;
/// Distance between the GPU and queue numbers of two nodes in a merged file.
pub const GPU_STRIDE: i64 = 1_000;
