//! Facts about traced processes that the collector knows before they report anything.

use super::RankIdentity;
use crate::host::machine;
use rpd_shard::rank_set::RankSet;
use rpd_shard::record::{Clock, ClockDomain, Node, Process};

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

impl SourceDefaults {
    /// Describes a process of a rank on this node that is seen now, as far as the collector knows it.
    pub(crate) fn describe_process(&self, source: u32, rank: RankIdentity, pid: i32) -> Process {
        Process {
            source,
            rank: rank.rank,
            size: rank.size,
            local_rank: rank.local_rank,
            rank_from: rank.rank_from,
            worker: false,
            restart: rank.restart,
            node: self.node.clone(),
            domain: self.domain.clone(),
            clock: Clock::Boottime,
            pid,
            ppid: 0,
            start_ticks: 0,
            first_seen: machine::boottime(),
            last_seen: None,
            command: String::new(),
            environment: Vec::new(),
            exit: None,
        }
    }
}
