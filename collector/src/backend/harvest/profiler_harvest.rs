//! State of the harvest of a rank.

use crate::shard_output::ShardPlace;
use rpd_shard::file::{KnownProcesses, Owner};
use rpd_shard::record::{ClockSet, Process, ProfilerLoss, ProfilerLossReason, RunIdentity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Maximum number of bytes to read from a note of a hook, or from a dump.
pub(super) const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Destination and owner of the harvested rows.
pub(crate) struct HarvestTarget<'a> {
    /// Location of the rank's shard.
    pub place: &'a ShardPlace,
    /// The rank's shard, if there is one. It has the clocks and the traced processes.
    pub shard: Option<PathBuf>,
    /// Process of the command.
    pub rank_process: Process,
    /// The profiler that should have started the command did not.
    pub wrapper_did_not_start: bool,
    /// How the profiler above the command ended.
    pub profiler: ProfilerOutcome,
}

/// How a profiler above the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum ProfilerOutcome {
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

pub(super) struct ProfilerHarvest<'a> {
    pub(super) target: &'a HarvestTarget<'a>,
    pub(super) rank_process: Process,
    pub(super) seen: Vec<Process>,
    pub(super) clocks: Vec<ClockSet>,
    /// The scratch folder has something that is nowhere else.
    pub(super) lost: bool,
    /// Profilers with missing rows, and the reasons.
    pub(super) losses: BTreeSet<ProfilerLoss>,
}

impl ProfilerHarvest<'_> {
    pub(super) fn lose(&mut self, backend: &str, reason: ProfilerLossReason) {
        self.losses.insert(ProfilerLoss {
            profiler: backend.to_owned(),
            rank: self.rank_process.rank,
            reason,
        });
    }

    pub(super) fn owner(&self) -> Owner {
        let ShardPlace { run, max_bytes, .. } = self.target.place;
        Owner {
            // The rank's own shard belongs to its collector.
            run: RunIdentity { rank: None, ..run.clone() },
            processes: Some(KnownProcesses {
                rank_process: self.rank_process.clone(),
                seen: self.seen.clone(),
            }),
            clocks: self.clocks.clone(),
            most_bytes: *max_bytes,
        }
    }
}
