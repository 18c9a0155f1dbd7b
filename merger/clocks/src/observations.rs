use rpd_shard::model::LocalNs;
use rpd_shard::record::{ClockDomain, ClockSet};
use std::collections::BTreeMap;

/// What is known of the clocks of a job. Domains are positions in `domains`; what names a position that is
/// not there is ignored.
#[derive(Clone, Debug, Default)]
pub struct ClockObservations {
    /// The clock domains, in merge order.
    pub domains: Vec<ClockDomain>,
    /// Domains that no input is of, but that others probed: their positions go on behind those of `domains`. Two
    /// nodes that probed the same one are compared through it.
    pub bridges: Vec<ClockDomain>,
    /// The domain whose BOOTTIME is the job's time: the node of rank 0, else of the lowest rank.
    pub reference: usize,
    /// Clock sets of each domain; none for the domains of bare databases.
    pub sets: Vec<Vec<ClockSet>>,
    /// Domains without clock sets whose times are those of the wall clock itself: from when to when there are any,
    /// ns of `CLOCK_REALTIME`.
    pub walls: BTreeMap<usize, (i64, i64)>,
    /// Bursts of probes.
    pub bursts: Vec<BurstTimes>,
    /// Matched collectives, or some of them.
    pub meetings: Vec<CollectiveObservation>,
}

/// The best probes of one burst between two domains. Times are `CLOCK_MONOTONIC_RAW`, ns, of the domain
/// that read them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BurstTimes {
    /// The prober, who read t1 and t4.
    pub from: usize,
    /// The answerer, who read t2 and t3.
    pub to: usize,
    /// Probes sent.
    pub sent: u32,
    /// Answers that came.
    pub answered: u32,
    /// Median absolute deviation of the offsets of all answered probes, ns.
    pub spread: i64,
    /// The probes with the shortest round trips, 1 to 8.
    pub best: Vec<ProbeTimes>,
    /// Whether the kernels of both nodes noted the receive times, t2 and t4.
    pub kernel_times: bool,
}

/// One question and its answer, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeTimes {
    /// Sent by the prober.
    pub t1: i64,
    /// Received by the answerer.
    pub t2: i64,
    /// Answered.
    pub t3: i64,
    /// Received by the prober.
    pub t4: i64,
}

/// One collective operation, which ranks of several domains entered and left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveObservation {
    /// Who waits for whom.
    pub needs: WaitRelation,
    /// The ranks that took part.
    pub attendances: Vec<RankInterval>,
}

/// Whom a rank has to wait for before it can leave a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitRelation {
    /// Everyone for everyone: barrier, allreduce, allgather, alltoall.
    AllOfAll,
    /// The same, but only the times say that it was one operation: nothing is certain by it.
    AllOfAllByTimes,
    /// Everyone for this rank: broadcast, scatter.
    AllOfRoot(u32),
    /// This rank for everyone: reduce, gather.
    RootOfAll(u32),
    /// Nobody for anybody: nothing follows from the times.
    Nothing,
}

/// When one rank was inside of a collective: `CLOCK_BOOTTIME` of its domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankInterval {
    /// The domain of the rank.
    pub domain: u32,
    /// The rank, as the root is named.
    pub rank: u32,
    /// When it entered.
    pub enter: LocalNs,
    /// When it left.
    pub exit: LocalNs,
}

/// By what domains are aligned.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AlignChoice {
    /// By everything that is known.
    #[default]
    Auto,
    /// By probes only.
    Probes,
    /// By the exits of collectives only.
    Collectives,
    /// By REALTIME anchors only.
    Anchors,
    /// Not at all.
    None,
}
