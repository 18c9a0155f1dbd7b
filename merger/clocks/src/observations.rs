use rpd_shard::model::LocalNs;
use rpd_shard::record::{ClockDomain, ClockSet, Probe};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All observations of the clocks of a job. Domains are indices into `domains`; entries with an index out of
/// range are ignored.
#[derive(Clone, Debug, Default)]
pub struct ClockObservations {
    /// The clock domains, in merge order.
    pub domains: Vec<ClockDomain>,
    /// Domains without inputs that others probed. Their indices follow those of `domains`. Two nodes that probed
    /// the same one are compared through it.
    pub bridges: Vec<ClockDomain>,
    /// The domain with the BOOTTIME that is the job time: that of rank 0, or else of the lowest rank.
    pub reference: usize,
    /// Clock sets of each domain; none for the domains of databases without clock sets.
    pub sets: Vec<Vec<ClockSet>>,
    /// Domains without clock sets, with times from the wall clock: first and last time, ns of
    /// `CLOCK_REALTIME`.
    pub walls: BTreeMap<usize, (i64, i64)>,
    /// Probe bursts.
    pub bursts: Vec<BurstTimes>,
    /// Matched collectives, or a sample of them.
    pub collectives: Vec<CollectiveObservation>,
}

/// The best probes of one burst between two domains. Times are ns of `CLOCK_MONOTONIC_RAW` of the domain that
/// read them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BurstTimes {
    /// The probing domain, which read t1 and t4.
    pub from: usize,
    /// The answering domain, which read t2 and t3.
    pub to: usize,
    /// Median absolute deviation of the offsets of all answered probes, ns.
    pub spread: i64,
    /// The probes with the shortest round trips, 1 to 8.
    pub best: Vec<Probe>,
    /// Whether the kernels of both nodes recorded the receive times t2 and t4.
    pub kernel_times: bool,
}

/// One collective that ranks of several domains entered and left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectiveObservation {
    /// Which ranks wait for which.
    pub waits: ObservedWaits,
    /// The ranks that took part.
    pub intervals: Vec<RankInterval>,
}

/// Which ranks wait for which in one observed collective, by rank numbers, and whether that is certain. A rank cannot
/// leave before those that it waits for have entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ObservedWaits {
    /// Every rank waits for all ranks: barrier, allreduce, allgather, alltoall.
    AllForAll,
    /// Like `AllForAll`, but only the times show that it was one collective, so that it yields no certain bounds.
    AllForAllByTimes,
    /// Every rank waits for this rank: broadcast, scatter.
    AllForRoot(u32),
    /// This rank waits for all ranks: reduce, gather.
    RootForAll(u32),
    /// No rank waits for another: nothing follows from the times.
    Nothing,
}

impl ObservedWaits {
    /// Returns whether other ranks wait for this rank.
    pub(super) fn is_awaited(self, rank: u32) -> bool {
        match self {
            ObservedWaits::AllForAll | ObservedWaits::AllForAllByTimes | ObservedWaits::RootForAll(_) => true,
            ObservedWaits::AllForRoot(root) => rank == root,
            ObservedWaits::Nothing => false,
        }
    }

    /// Returns whether this rank waits for others.
    pub(super) fn is_waiting(self, rank: u32) -> bool {
        match self {
            ObservedWaits::AllForAll | ObservedWaits::AllForAllByTimes | ObservedWaits::AllForRoot(_) => true,
            ObservedWaits::RootForAll(root) => rank == root,
            ObservedWaits::Nothing => false,
        }
    }
}

/// Interval in which one rank was inside a collective, in `CLOCK_BOOTTIME` of its domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankInterval {
    /// The domain of the rank.
    pub domain: u32,
    /// The rank, numbered like the root.
    pub rank: u32,
    /// Entry time.
    pub enter: LocalNs,
    /// Exit time.
    pub exit: LocalNs,
}

/// Which observations are used to align domains.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AlignChoice {
    /// Probes and collectives, else REALTIME.
    #[default]
    Auto,
    /// Probes only.
    Probes,
    /// Exits of collectives only.
    Collectives,
    /// REALTIME only, as NTP has set it.
    Anchors,
    /// Nothing: times stay as recorded.
    None,
}
