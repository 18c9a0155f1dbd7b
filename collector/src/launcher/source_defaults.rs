//! What a collector knows of each process before that says anything.

use super::RankIdentity;
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{ClockDomain, Node};

/// What processes have from their collector unless they say something else.
#[derive(Clone, Debug)]
pub struct SourceDefaults {
    /// Rank of the collector.
    pub rank: RankIdentity,
    /// The rank comes from a variable that the user named, and which processes do not report.
    pub rank_is_named: bool,
    /// Ranks to record.
    pub ranks: RankSet,
    /// Its node.
    pub node: Node,
    /// Its clocks.
    pub domain: ClockDomain,
}
