//! Profilers with missing rows, grouped over the ranks that they were started for.

use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::record::{Loss, LossCause, ProfilerLoss, ProfilerLossReason};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Ranks without rows, by profiler and reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfilerLosses(BTreeMap<(String, ProfilerLossReason), AffectedRanks>);

/// The commands that one profiler did not record for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AffectedRanks {
    /// Ranks of those commands that have one.
    pub ranks: BTreeSet<u32>,
    /// Number of commands without a rank.
    pub without_rank: u64,
}

impl ProfilerLosses {
    /// Returns the losses that one collector recorded.
    pub(super) fn of(recorded: &[ProfilerLoss]) -> ProfilerLosses {
        let mut losses = ProfilerLosses::default();
        for ProfilerLoss { profiler, rank, reason } in recorded {
            let affected = losses.0.entry((profiler.clone(), *reason)).or_default();
            affected.ranks.extend(*rank);
            affected.without_rank += u64::from(rank.is_none());
        }
        losses
    }

    /// Adds the losses of another input or merge rank.
    pub fn join(&mut self, other: ProfilerLosses) {
        for (loss, affected) in other.0 {
            let own = self.0.entry(loss).or_default();
            own.ranks.extend(affected.ranks);
            own.without_rank = own.without_rank.saturating_add(affected.without_rank);
        }
    }

    /// Returns each profiler with a reason and the ranks, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ProfilerLossReason, &AffectedRanks)> {
        self.0.iter().map(|((profiler, reason), affected)| (profiler.as_str(), *reason, affected))
    }
}

/// Returns a loss of an unknown number of rows for each damaged record of a profiler.
pub(super) fn damaged_profiler_losses(shard: &Shard) -> impl Iterator<Item = Loss> + '_ {
    let kinds = shard.damage().iter().filter_map(|damage| Some(damage.block?.kind));
    kinds.filter(|kind| *kind == BlockKind::ProfilerLoss).map(|_| Loss {
        source: 0,
        table: None,
        cause: LossCause::DamagedBlock,
        rows: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_grouped_by_profiler_and_reason() {
        let loss = |rank, reason| ProfilerLoss { profiler: "rocprofv3".to_owned(), rank, reason };
        let (killed, silent) = (ProfilerLossReason::Killed, ProfilerLossReason::Silent);
        let mut all = ProfilerLosses::of(&[loss(Some(3), killed), loss(None, killed)]);
        all.join(ProfilerLosses::of(&[loss(Some(1), killed), loss(Some(2), silent), loss(None, killed)]));
        let affected = |ranks: &[u32], without_rank| AffectedRanks {
            ranks: ranks.iter().copied().collect(),
            without_rank,
        };
        assert_eq!(
            all.iter().collect::<Vec<_>>(),
            [("rocprofv3", killed, &affected(&[1, 3], 2)), ("rocprofv3", silent, &affected(&[2], 0))]
        );
    }
}
