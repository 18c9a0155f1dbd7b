//! The rank for which profiler files are harvested.

use crate::shard_output::ShardPlace;
use rpd_shard::record::Process;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Destination and owner of the harvested rows.
pub(crate) struct HarvestTarget<'a> {
    /// Location of the rank's shard.
    pub place: &'a ShardPlace,
    /// The rank's shard, if there is one. It has the clocks and the traced processes.
    pub shard: Option<PathBuf>,
    /// Process of the command.
    pub usual: Process,
    /// The profiler that should have started the command did not.
    pub without_front: bool,
    /// How the profiler above the command ended.
    pub profiler: ProfilerEnding,
}

/// How a profiler above the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum ProfilerEnding {
    /// No profiler stayed above the command, or its end was not observed.
    #[default]
    Unseen,
    /// It had the status of the command.
    AsTheCommand,
    /// The command succeeded and the profiler failed, or a signal ended the profiler.
    Failed,
    /// It did not end after the command and was killed.
    Killed,
}
