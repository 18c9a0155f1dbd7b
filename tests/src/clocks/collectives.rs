//! Ranks that work, meet and leave.

use super::node::{NodeClock, SECOND, exponential, normal, uniform};
use super::scenario::{self, ClockScenario, NoiseLevel};
use crate::synthetic::RandomSource;
use rpd_clocks::{CollectiveObservation, ObservedWaits, RankInterval};
use rpd_shard::model::LocalNs;

/// Most ranks of a node. All nodes of a job have as many.
const MOST_RANKS: usize = 3;
/// From the last entry to the first exit that had to wait for it, ns.
const LATENCY: f64 = 10e3;
/// The share of it that the last one needs: it waits for nobody.
const LAST_NEEDS: f64 = 0.6;

/// What a node does in every collective.
struct Habit {
    /// Leaves later than others, ns.
    late: f64,
    straggler: bool,
    /// Leaves later still by so much, ns, from one true time to another.
    regime: (f64, [i64; 2]),
    /// How far its exits scatter, ns: ranks that wait for a core.
    scatter: f64,
}

/// All collectives of a job.
pub(super) fn observe(
    (scenario, noise): (&ClockScenario, NoiseLevel),
    clocks: &[NodeClock],
    joined: &[i64],
    seconds: i64,
    random: &mut RandomSource,
) -> Vec<CollectiveObservation> {
    let habits: Vec<Habit> = clocks
        .iter()
        .map(|_| {
            let late = 150.0 * normal(random);
            let always =
                if scenario.late_exits && random.chance(25) { 2e3 + 6e3 * uniform(random) } else { 0.0 };
            let mut habit =
                Habit { late: late + always, straggler: false, regime: (0.0, [0; 2]), scatter: 1.5e3 };
            if noise != NoiseLevel::Quiet && random.chance(25) {
                let length = (seconds as f64 * (0.1 + 0.3 * uniform(random)) * SECOND as f64) as i64;
                let from = random.between(0, (seconds * SECOND - length).max(1));
                habit.regime = (4e3 + 16e3 * uniform(random), [from, from + length]);
            }
            if noise == NoiseLevel::Busy {
                habit.scatter = 1.4e6 * (23.0f64 / 1.4).powf(uniform(random));
            }
            habit
        })
        .collect();
    let mut habits = habits;
    if scenario.stragglers {
        (0..2).for_each(|_| {
            let node = random.index(habits.len());
            habits[node].straggler = true;
        });
    }
    let ranks = 1 + random.index(MOST_RANKS);
    times(scenario, seconds, random)
        .into_iter()
        .map(|at| {
            let group = if random.chance(10) { 4 } else { clocks.len() };
            let first = random.index(clocks.len());
            let nodes =
                (0..group).map(|i| (first + i) % clocks.len()).filter(|&n| joined[n] < at - SECOND / 10);
            let nodes: Vec<usize> = nodes.collect();
            meeting(at, &nodes, ranks, &habits, clocks, random)
        })
        .collect()
}

fn times(scenario: &ClockScenario, seconds: i64, random: &mut RandomSource) -> Vec<i64> {
    let end = seconds * SECOND;
    match scenario.collectives {
        scenario::CollectiveRate::Never => Vec::new(),
        scenario::CollectiveRate::Seldom => {
            (0..12).map(|_| random.between(SECOND / 5, end - SECOND / 5)).collect()
        }
        scenario::CollectiveRate::Often => every(0.2, 0.47, end, random),
        scenario::CollectiveRate::Densely => every(0.01, 0.023, end, random),
    }
}

/// At gaps of at least so many seconds, and about so many more.
fn every(least: f64, more: f64, end: i64, random: &mut RandomSource) -> Vec<i64> {
    let mut at = SECOND / 5;
    let mut times = Vec::new();
    while at < end - SECOND / 5 {
        times.push(at);
        at += (SECOND as f64 * (least + more * exponential(random))) as i64;
    }
    times
}

fn meeting(
    at: i64,
    nodes: &[usize],
    ranks_of_each: usize,
    habits: &[Habit],
    clocks: &[NodeClock],
    random: &mut RandomSource,
) -> CollectiveObservation {
    // (node, rank, enter), true times.
    let mut ranks: Vec<(usize, u32, f64)> = Vec::with_capacity(nodes.len() * ranks_of_each);
    for &node in nodes {
        let behind =
            if habits[node].straggler && random.chance(80) { 1e6 * (1.0 + exponential(random)) } else { 0.0 };
        for rank in 0..ranks_of_each {
            ranks.push((node, (node * ranks_of_each + rank) as u32, 100e3 * normal(random).abs() + behind));
        }
    }
    let waits = match random.index(8) {
        _ if ranks.is_empty() => ObservedWaits::Nothing,
        0 => ObservedWaits::AllForRoot(random.pick(&ranks).1),
        1 => ObservedWaits::RootForAll(random.pick(&ranks).1),
        _ => ObservedWaits::AllForAll,
    };
    let last =
        ranks.iter().fold((0, f64::NEG_INFINITY), |last, r| if r.2 > last.1 { (r.0, r.2) } else { last });
    let root = ranks.iter().find(
        |r| matches!(waits, ObservedWaits::AllForRoot(root) | ObservedWaits::RootForAll(root) if root == r.1),
    );
    let root = root.map_or(0.0, |r| r.2);
    let latency = LATENCY * (0.8 + 0.4 * uniform(random));
    let mut attend = |&(node, rank, enter): &(usize, u32, f64)| {
        let released = match waits {
            ObservedWaits::AllForAll if node == last.0 => last.1 + LAST_NEEDS * latency,
            ObservedWaits::AllForAll | ObservedWaits::AllForAllByTimes => last.1 + latency,
            ObservedWaits::AllForRoot(_) => enter.max(root + latency),
            ObservedWaits::RootForAll(root) if root == rank => last.1 + latency,
            ObservedWaits::RootForAll(_) | ObservedWaits::Nothing => enter,
        };
        let hiccup = if random.chance(1) { 20e3 * uniform(random).powf(-0.7) } else { 0.0 };
        let habit = &habits[node];
        let (regime, [from, to]) = habit.regime;
        let late = habit.late + if at >= from && at < to { regime } else { 0.0 };
        let exit = released + (late + 1e3).max(0.0) + habit.scatter * exponential(random) + hiccup;
        let clock = &clocks[node];
        let mut read = |time: f64| LocalNs(clock.boottime(at + time as i64) + random.between(0, 30));
        RankInterval { domain: node as u32, rank, enter: read(enter), exit: read(exit) }
    };
    let intervals = ranks.iter().map(&mut attend).collect();
    CollectiveObservation { waits, intervals }
}
