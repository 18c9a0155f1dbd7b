//! State of the harvest of a rank.

use super::target::HarvestTarget;
use crate::shard_output::ShardPlace;
use rpd_shard::file::{KnownProcesses, Owner};
use rpd_shard::record::{ClockSet, Process, ProfilerLoss, ProfilerLossReason, RunIdentity};
use std::collections::BTreeSet;

/// Maximum number of bytes to read from a note of a hook, or from a dump.
pub(super) const MAX_TEXT_BYTES: u64 = 64 << 20;

pub(super) struct ProfilerHarvest<'a> {
    pub(super) target: &'a HarvestTarget<'a>,
    pub(super) usual: Process,
    pub(super) seen: Vec<Process>,
    pub(super) clocks: Vec<ClockSet>,
    /// The scratch folder has something that is nowhere else.
    pub(super) lost: bool,
    /// Profilers with missing rows, and the reasons.
    pub(super) losses: BTreeSet<ProfilerLoss>,
}

impl ProfilerHarvest<'_> {
    pub(super) fn lose(&mut self, backend: &str, reason: ProfilerLossReason) {
        self.losses.insert(ProfilerLoss { profiler: backend.to_owned(), rank: self.usual.rank, reason });
    }

    pub(super) fn owner(&self) -> Owner {
        let ShardPlace { run, max_bytes, .. } = self.target.place;
        Owner {
            // The rank's own shard belongs to its collector.
            run: RunIdentity { rank: None, ..run.clone() },
            processes: Some(KnownProcesses { usual: self.usual.clone(), seen: self.seen.clone() }),
            clocks: self.clocks.clone(),
            most_bytes: *max_bytes,
        }
    }
}
