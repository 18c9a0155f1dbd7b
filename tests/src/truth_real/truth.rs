//! The right answer for one run, from the logs of its ranks.

use super::logs::RankLog;
use super::replay::Replay;
use super::scenarios::{Culprit, PlantedCause, Proportions, Scenario};
use serde::{Deserialize, Serialize};

/// Text of the range around each read.
pub(super) const READS: &str = "read";

/// What a report on a run has to say. All durations are ns and measured, but for `nominal_gain_ns`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Truth {
    /// Name of the scenario.
    pub scenario: String,
    /// Its row in the table of the design.
    pub number: u32,
    /// Seed of the noise.
    pub seed: u64,
    /// Ranks of the job.
    pub ranks: u32,
    /// Nodes of the job, in the order of their numbers.
    pub nodes: Vec<NodeName>,
    /// Number of steps.
    pub steps: u32,
    /// What has to be named.
    pub culprit: Culprit,
    /// Range of the excess.
    pub label: String,
    /// Key of the cause that has to be named, if any has.
    #[serde(default)]
    pub cause: Option<String>,
    /// Key of the cause that the program could have and that is not planted: no cause must be named. The machine itself can
    /// then make a rank longer, as work is not slept.
    #[serde(default)]
    pub absent_cause: Option<String>,
    /// Time in reads, by rank, as the program measured it; empty, if it reads nothing.
    #[serde(default)]
    pub reads_ns_by_rank: Vec<i64>,
    /// First and last slow step, if only some are slow.
    pub phase: Option<(u32, u32)>,
    /// Length of the run, from the first begin of a rank to the last end.
    pub length_ns: i64,
    /// How much shorter the run would be without what has to be named first: the planted delays of the rank or node, or,
    /// of a start-up, what its longest rank takes more than the median one.
    pub gain_ns: i64,
    /// How much shorter it would be without any planted delay.
    pub gain_of_all_ns: i64,
    /// How much shorter it would be without the planted delays of a rank, by rank.
    pub gain_by_rank_ns: Vec<i64>,
    /// All time of the culprit in the range, if only this bound can be known.
    pub at_most_ns: Option<i64>,
    /// Longest minus shortest time before the first step.
    pub start_up_ns: Option<i64>,
    /// Steps times excess, as planted. Where a cause makes a rank slow, its delays as it measured them.
    pub nominal_gain_ns: i64,
    /// Sum of the planted delays, by rank.
    pub planted_by_rank_ns: Vec<i64>,
    /// Waits of all ranks, but for those in MPI_Init and MPI_Finalize.
    pub waits_ns: i64,
    /// Waits in MPI_Init.
    pub init_waits_ns: i64,
    /// Waits in MPI_Finalize.
    pub finalize_waits_ns: i64,
    /// How much less ranks would wait without any planted delay.
    pub caused_waits_ns: i64,
}

/// A node as the job knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeName {
    /// Host name.
    pub host: String,
    /// Its ranks.
    pub ranks: Vec<u32>,
}

impl Truth {
    /// Computes it.
    ///
    /// # Errors
    /// If the logs do not fit together, or not the scenario.
    pub fn new(
        scenario: &Scenario,
        proportions: &Proportions,
        seed: u64,
        logs: &[RankLog],
    ) -> Result<Truth, String> {
        let replay = Replay::new(logs)?;
        let whole = replay.without(|_, _| false)?;
        let without_all = replay.without(|_, _| true)?;
        let gain_without = |is_guilty: &dyn Fn(u32) -> bool| -> Result<i64, String> {
            Ok(whole.length_ns - replay.without(|rank, _| is_guilty(rank))?.length_ns)
        };
        let gain_by_rank_ns: Result<Vec<i64>, String> =
            (0..scenario.ranks).map(|rank| gain_without(&|other| other == rank)).collect();
        let gain_by_rank_ns = gain_by_rank_ns?;
        let gain_of_all_ns = whole.length_ns - without_all.length_ns;
        let loads = LoadTimes::new(logs, scenario.label);
        let gain_ns = match scenario.culprit {
            Culprit::Rank(rank) | Culprit::AtMost(rank) | Culprit::TwoRanks(rank, _) => {
                gain_by_rank_ns[rank as usize]
            }
            Culprit::Node(node) => gain_without(&|rank| scenario.node_of(rank) == node)?,
            Culprit::Turns => gain_of_all_ns,
            // The length of a run without the delay says it.
            Culprit::Nobody | Culprit::Network(_) => 0,
            Culprit::StartUp => loads.max - loads.median,
        };
        let nodes = (0..scenario.nodes()).map(|node| {
            let ranks: Vec<u32> =
                (0..scenario.ranks).filter(|rank| scenario.node_of(*rank) == node).collect();
            NodeName { host: logs[ranks[0] as usize].host.clone(), ranks }
        });
        let nodes: Vec<NodeName> = nodes.collect();
        for node in &nodes {
            if node.ranks.iter().any(|rank| logs[*rank as usize].host != node.host) {
                return Err(format!("ranks {:?} are not all on {}", node.ranks, node.host));
            }
        }
        let slow_steps = steps_with_delays(logs);
        let is_phase = slow_steps.is_some_and(|(_, last)| last + 1 < proportions.steps)
            && scenario.cause.is_none()
            && scenario.culprit != Culprit::Nobody;
        let planted = scenario.cause.filter(|_| scenario.culprit != Culprit::Nobody);
        let reads = matches!(scenario.cause, Some(PlantedCause::SlowReads));
        let reads = logs.iter().filter(|_| reads).map(|log| log.label_ns(READS));
        Ok(Truth {
            scenario: scenario.name.to_owned(),
            number: scenario.number,
            seed,
            ranks: scenario.ranks,
            nodes,
            steps: proportions.steps,
            culprit: scenario.culprit,
            label: scenario.label.to_owned(),
            cause: planted.map(|cause| cause.key().to_owned()),
            absent_cause: scenario.cause.filter(|_| planted.is_none()).map(|cause| cause.key().to_owned()),
            reads_ns_by_rank: reads.collect(),
            phase: slow_steps.filter(|_| is_phase),
            length_ns: whole.length_ns,
            gain_ns,
            gain_of_all_ns,
            gain_by_rank_ns,
            at_most_ns: match scenario.culprit {
                Culprit::AtMost(rank) => Some(logs[rank as usize].label_ns(scenario.label)),
                _ => None,
            },
            start_up_ns: (scenario.culprit == Culprit::StartUp).then_some(loads.max - loads.min),
            nominal_gain_ns: match scenario.cause {
                None => nominal_gain_ns(scenario, proportions),
                Some(_) => logs.iter().map(RankLog::planted_ns).sum(),
            },
            planted_by_rank_ns: logs.iter().map(RankLog::planted_ns).collect(),
            waits_ns: whole.waits_ns,
            init_waits_ns: whole.init_waits_ns,
            finalize_waits_ns: whole.finalize_waits_ns,
            caused_waits_ns: (whole.waits_ns + whole.finalize_waits_ns)
                - (without_all.waits_ns + without_all.finalize_waits_ns),
        })
    }

    /// Returns whether a rank took so much longer in reads than each of the others, as the program measured it.
    pub fn has_longer_reads(&self, rank: u32, more_ns: i64) -> bool {
        let of_others = self.reads_ns_by_rank.iter().enumerate().filter(|(other, _)| *other != rank as usize);
        let longest = of_others.map(|(_, ns)| *ns).max();
        let own = self.reads_ns_by_rank.get(rank as usize);
        own.zip(longest).is_some_and(|(own, longest)| own - longest >= more_ns.max(1))
    }

    /// The host names and ranks of a node.
    pub fn node(&self, node: u32) -> Option<&NodeName> {
        self.nodes.get(node as usize)
    }
}

/// Shortest, median and longest time of the ranks in ranges with one text.
struct LoadTimes {
    min: i64,
    median: i64,
    max: i64,
}

impl LoadTimes {
    /// The median of an even number of ranks is the lower one, as in the replay of a report.
    fn new(logs: &[RankLog], label: &str) -> LoadTimes {
        let mut times: Vec<i64> = logs.iter().map(|log| log.label_ns(label)).collect();
        times.sort_unstable();
        LoadTimes { min: times[0], median: times[(times.len() - 1) / 2], max: times[times.len() - 1] }
    }
}

/// First and last step with a planted delay.
fn steps_with_delays(logs: &[RankLog]) -> Option<(u32, u32)> {
    let ranges = logs.iter().flat_map(|log| &log.ranges).filter(|range| range.planted_ns > 0);
    let steps: Vec<u32> = ranges.filter_map(|range| u32::try_from(range.step).ok()).collect();
    Some((*steps.iter().min()?, *steps.iter().max()?))
}

/// The formulas of the table: steps times excess, half of the steps in a phase, half of the excess while the second rank
/// stays slow.
fn nominal_gain_ns(scenario: &Scenario, proportions: &Proportions) -> i64 {
    let excess = proportions.work_ms * proportions.excess * 1e6;
    let slow_steps = if scenario.plan == "phase" {
        proportions.steps * 3 / 4 - proportions.steps / 4
    } else {
        proportions.steps
    };
    let gain = match scenario.culprit {
        Culprit::Nobody => 0.0,
        Culprit::StartUp => {
            f64::from(4 * (scenario.ranks - 1 - (scenario.ranks - 1) / 2)) * proportions.work_ms * 1e6
        }
        Culprit::TwoRanks(..) => f64::from(slow_steps) * excess / 2.0,
        _ => f64::from(slow_steps) * excess,
    };
    gain as i64
}
