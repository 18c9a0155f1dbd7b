//! Facts about traced processes that the collector knows before they report anything.

use super::RankIdentity;
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{ClockDomain, Node};

/// Properties of a traced process, unless the process reports other ones.
#[derive(Clone, Debug)]
pub struct SourceDefaults {
    /// Rank of the collector.
    pub rank: RankIdentity,
    /// The rank comes from a variable that the user named. Traced processes do not report it.
    pub rank_is_named: bool,
    /// Ranks to record.
    pub ranks: RankSet,
    /// Node of the collector.
    pub node: Node,
    /// Clock domain of the collector.
    pub domain: ClockDomain,
}
