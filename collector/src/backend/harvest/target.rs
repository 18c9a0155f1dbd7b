//! The rank whose profilers left files.

use crate::shard_output::ShardPlace;
use rpd_shard::record::Process;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where it goes, and whose it is.
pub(crate) struct HarvestTarget<'a> {
    /// The place of the rank's shard.
    pub place: &'a ShardPlace,
    /// That shard, where there is one: it has clocks, and the processes that were traced.
    pub shard: Option<PathBuf>,
    /// The command's own process.
    pub usual: Process,
    /// The profiler in front of the command did not start it.
    pub without_front: bool,
    /// How the profiler that stayed above the command ended.
    pub profiler: ProfilerEnding,
}

/// How a profiler that stayed above the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum ProfilerEnding {
    /// No profiler stayed above the command, or its end was not seen.
    #[default]
    Unseen,
    /// Its status was that of the command.
    AsTheCommand,
    /// The command succeeded and the profiler did not, or a signal ended the profiler.
    Failed,
    /// It did not end after the command, and was killed.
    Killed,
}
