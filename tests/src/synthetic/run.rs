use super::clock::{ModelClock, RUN_START};
use super::names::NamePool;
use super::process::ProcessRows;
use super::random::RandomSource;
use rpd_shard::record::{ClockDomain, ClockSet, Node};
use std::collections::BTreeMap;

/// What a synthetic run shall be like. The same values give the same run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntheticRun {
    /// Where everything random comes from.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: u32,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// HIP calls, ranges, marks, calls of MPI and RCCL of each process; dispatches, copies, arguments and the
    /// like come on top.
    pub events_per_rank: usize,
    /// Threads of each process.
    pub threads: usize,
    /// Different kernels.
    pub kernels: usize,
    /// Largest clock drift of a node, in 1e-9 (1000 = 1 ppm).
    pub max_drift_ppb: i64,
    /// Largest error of a node's `CLOCK_REALTIME`, ns.
    pub max_anchor_error: i64,
    /// Every second rank has a second process, a worker.
    pub workers: bool,
    /// This rank has left no shard.
    pub missing_rank: Option<u32>,
    /// The nodes measure their clocks against each other.
    pub probes: bool,
    /// All ranks call a collective of MPI at the end of each step.
    pub collectives: bool,
    /// The first ranks of all nodes have the same process id.
    pub equal_pids: bool,
    /// The first two nodes claim one machine-id.
    pub equal_machine_ids: bool,
}

impl Default for SyntheticRun {
    fn default() -> SyntheticRun {
        SyntheticRun {
            seed: 1,
            nodes: 2,
            ranks_per_node: 2,
            events_per_rank: 200,
            threads: 3,
            kernels: 24,
            max_drift_ppb: 0,
            max_anchor_error: 0,
            workers: false,
            missing_rank: None,
            probes: false,
            collectives: true,
            equal_pids: false,
            equal_machine_ids: false,
        }
    }
}

/// A run: its processes and their clocks. [`Run::rows`] has what they did.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it was made from.
    pub config: SyntheticRun,
    /// The run id.
    pub run_id: String,
    /// The nodes.
    pub nodes: Vec<SyntheticNode>,
    /// The ranks, also one that is missing.
    pub ranks: Vec<ModelRank>,
    pub(super) names: NamePool,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntheticNode {
    /// Its identity.
    pub node: Node,
    /// Its clocks.
    pub clock: ModelClock,
}

/// A rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelRank {
    /// Its number.
    pub rank: u32,
    /// Position of its node.
    pub node: usize,
    /// Its processes: the rank itself, then workers.
    pub processes: Vec<PlannedProcess>,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedProcess {
    /// Rank that it belongs to.
    pub rank: u32,
    /// Rank on its node.
    pub local_rank: u32,
    /// Position of its node.
    pub node: usize,
    /// Number in the shard, from 1.
    pub source: u32,
    /// Process id.
    pub pid: i32,
    /// Process id of its parent.
    pub ppid: i32,
}

impl PlannedProcess {
    /// Whether it is a worker below a rank, not the rank itself.
    pub fn worker(&self) -> bool {
        self.source > 1
    }
}

impl SyntheticRun {
    /// Makes up nodes, clocks, ranks and processes.
    pub fn plan(&self) -> Run {
        let mut random = RandomSource::new(&[self.seed, 2]);
        let nodes: Vec<_> = (0..self.nodes).map(|i| self.node(i, &mut random)).collect();
        let ranks = (0..self.nodes * self.ranks_per_node).map(|rank| self.rank(rank)).collect();
        let run_id = format!("synthetic-{}.0", self.seed);
        Run { config: self.clone(), run_id, nodes, ranks, names: NamePool::new(self.seed, self.kernels) }
    }

    /// Plans the run and gives it another run id.
    pub fn plan_as(&self, run_id: &str) -> Run {
        Run { run_id: run_id.to_owned(), ..self.plan() }
    }

    fn node(&self, i: u32, random: &mut RandomSource) -> SyntheticNode {
        let claimed = if self.equal_machine_ids && i == 1 { 0 } else { i };
        let boot_id = format!("{:08x}-0000-4000-8000-{:012x}", random.bits() as u32, i);
        let node = Node {
            machine_id: format!("{:032x}", u128::from(self.seed) << 32 | u128::from(claimed)),
            boot_id: boot_id.clone(),
            system_name: "Linux".into(),
            hostname: format!("gpu{i:03}"),
            release: "6.8.0-41-generic".into(),
            version: "#1 SMP PREEMPT_DYNAMIC".into(),
            hardware_name: "x86_64".into(),
            domain_name: "(none)".into(),
        };
        let either_way = |random: &mut RandomSource, most: i64| random.between(-most, most + 1);
        let clock = ModelClock {
            offset: random.between(0, 90 * 86_400) * 1_000_000_000 + random.between(0, 1_000_000_000),
            drift_ppb: either_way(random, self.max_drift_ppb),
            anchor_error: either_way(random, self.max_anchor_error),
            domain: ClockDomain { boot_id, time_namespace: 4_026_531_834 },
        };
        SyntheticNode { node, clock }
    }

    fn rank(&self, rank: u32) -> ModelRank {
        let (node, local_rank) = (rank / self.ranks_per_node, rank % self.ranks_per_node);
        let node = node as usize;
        let pid = if self.equal_pids { 4_000 + local_rank * 10 } else { 4_000 + rank * 10 } as i32;
        let process = |source: u32| PlannedProcess {
            rank,
            local_rank,
            node,
            source,
            pid: pid + source as i32 - 1,
            ppid: if source == 1 { 900 } else { pid },
        };
        let count = if self.workers && rank % 2 == 1 { 2 } else { 1 };
        ModelRank { rank, node, processes: (1..=count).map(process).collect() }
    }
}

impl Run {
    /// The ranks that left something.
    pub fn present(&self) -> impl Iterator<Item = &ModelRank> {
        self.ranks.iter().filter(|rank| Some(rank.rank) != self.config.missing_rank)
    }

    /// All processes that left something, in the order (rank, number in the shard).
    pub fn processes(&self) -> impl Iterator<Item = &PlannedProcess> {
        self.present().flat_map(|rank| &rank.processes)
    }

    /// What a process did.
    pub fn rows(&self, process: &PlannedProcess) -> ProcessRows {
        ProcessRows::generate(self, process)
    }

    /// The clock sets that the collector of a rank recorded, in that order.
    pub fn clock_sets(&self, rank: &ModelRank) -> Vec<ClockSet> {
        let mut random = RandomSource::new(&[self.config.seed, 3, u64::from(rank.rank)]);
        let from = RUN_START + random.between(0, 1_000_000);
        let to = RUN_START + self.length() + random.between(0, 1_000_000);
        self.nodes[rank.node].clock.sets(from, to, &mut random)
    }

    /// How long the run takes, ns.
    pub fn length(&self) -> i64 {
        super::process::length(&self.config)
    }

    /// What is added to local times of a node to get job time when nodes are joined through their
    /// `CLOCK_REALTIME` anchors; the reference is the node of the lowest rank that is there.
    pub fn shift(&self, node: usize) -> i64 {
        let reference = self.present().next().map_or(0, |rank| rank.node);
        self.anchor(node) - self.anchor(reference)
    }

    /// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME` of a node: the middle one of its clock sets, of which the best one
    /// of each second counts.
    fn anchor(&self, node: usize) -> i64 {
        let sets = self.present().filter(|rank| rank.node == node).flat_map(|rank| self.clock_sets(rank));
        let mut best: BTreeMap<i64, ClockSet> = BTreeMap::new();
        for set in sets {
            let known = best.entry(set.boottime.div_euclid(1_000_000_000)).or_insert_with(|| set.clone());
            if (set.bracket, set.boottime) < (known.bracket, known.boottime) {
                *known = set;
            }
        }
        let mut anchors: Vec<i64> = best.values().map(|set| set.realtime - set.boottime).collect();
        anchors.sort_unstable();
        anchors.get(anchors.len() / 2).copied().unwrap_or(0)
    }
}
