//! Probes along a binomial tree.

use super::node::{NodeClock, SECOND, exponential, normal, uniform};
use super::scenario::{ClockScenario, NoiseLevel, ProbeRate};
use crate::synthetic::RandomSource;
use rpd_clocks::BurstTimes;
use rpd_shard::record::Probe;

/// Probes at the start and at the end, and in between.
const AT_ENDS: usize = 200;
const BETWEEN: usize = 20;
/// Between bursts, ns.
const PERIOD: i64 = 5 * SECOND;
/// Between the probes of a burst, ns.
const PACE: i64 = 100_000;

/// A card that moderates interrupts holds a packet back for at most this long, ns.
const MODERATION: f64 = 50e3;

/// One way through the network.
struct Way {
    /// The shortest delay, ns.
    least: f64,
    heavy_tails: bool,
    noise: NoiseLevel,
}

impl Way {
    fn delay(&self, random: &mut RandomSource) -> f64 {
        let queue = if !self.heavy_tails {
            3e3 * exponential(random)
        } else if random.chance(20) {
            // Pareto: now and then a hundred times as long.
            15e3 * uniform(random).powf(-1.0 / 1.5)
        } else {
            15e3 * exponential(random)
        };
        let held = if self.noise == NoiseLevel::Moderated { MODERATION * uniform(random) } else { 0.0 };
        self.least + queue + held
    }
}

/// The way there and the way back between two nodes. All links of a job have about the same length.
fn ways(scenario: &ClockScenario, noise: NoiseLevel, random: &mut RandomSource) -> [Way; 2] {
    let least = 6e3 + 3e3 * uniform(random);
    let mut ways = [0, 1].map(|_| Way {
        least: least + 150.0 * normal(random),
        heavy_tails: scenario.heavy_tails,
        noise,
    });
    if scenario.asymmetry && random.chance(30) {
        ways[random.index(2)].least += 4e3;
    }
    ways
}

/// What all probes of a burst have in common, ns: how much longer each way takes.
struct Common {
    there: f64,
    back: f64,
    /// The programs wait for a core by so much more, both ways together.
    waiting: f64,
    /// The share of it on the way there.
    share: f64,
}

impl Common {
    fn new(noise: NoiseLevel, round_trip: f64, which: Which, random: &mut RandomSource) -> Common {
        let none = Common { there: 0.0, back: 0.0, waiting: 0.0, share: 0.5 };
        let even = |off: f64, common: Common| Common {
            there: off.max(0.0) * 2.0,
            back: (-off).max(0.0) * 2.0,
            ..common
        };
        match noise {
            NoiseLevel::Quiet => none,
            NoiseLevel::Moderated => even(0.004 * round_trip * normal(random), none),
            NoiseLevel::Busy => {
                let mut off = 0.021 * round_trip * normal(random);
                if which == Which::Last {
                    let far = 3e3 + 9e3 * uniform(random);
                    off = if random.chance(8) { far } else { 1.4e3 * normal(random) };
                    off = if random.chance(50) { -off } else { off };
                }
                let crowded = which == Which::Between && random.chance(22);
                let waiting =
                    if crowded { 1e6 * (1.0 + exponential(random)) } else { 7e3 * exponential(random) };
                let share = (0.5 + 0.18 * normal(random)).clamp(0.0, 1.0);
                even(off, Common { waiting, share, ..none })
            }
        }
    }
}

/// Place of a burst in its run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Between,
    Last,
}

/// All bursts of a job. `joined` is when each node came.
pub(super) fn bursts(
    (scenario, noise): (&ClockScenario, NoiseLevel),
    clocks: &[NodeClock],
    joined: &[i64],
    seconds: i64,
    random: &mut RandomSource,
) -> Vec<BurstTimes> {
    let mut bursts = Vec::new();
    if scenario.probes == ProbeRate::Nobody {
        return bursts;
    }
    let unprobed = (scenario.probes == ProbeRate::AllButOne).then(|| 1 + random.index(clocks.len() - 1));
    let kept = 3 + random.index(6);
    for node in 1..clocks.len() {
        // The tree's parent; until that has come, whoever stands in its place.
        let parent = node & (node - 1);
        let mut from = joined[node];
        let mut at_start = true;
        if joined[parent] > from {
            let stand_in = parent & (parent - 1);
            let ways = ways(scenario, noise, random);
            let link = Link { ends: [node, stand_in], ways, kept, noise };
            link.run([from, joined[parent]], at_start, clocks, random, &mut bursts);
            (from, at_start) = (joined[parent], false);
        }
        let ways = ways(scenario, noise, random);
        let link = Link { ends: [node, parent], ways, kept, noise };
        link.run([from, seconds * SECOND], at_start, clocks, random, &mut bursts);
    }
    // Its children have nobody to ask either.
    bursts.retain(|b| Some(b.from) != unprobed && Some(b.to) != unprobed);
    bursts
}

struct Link {
    ends: [usize; 2],
    ways: [Way; 2],
    kept: usize,
    noise: NoiseLevel,
}

impl Link {
    fn run(
        &self,
        [from, to]: [i64; 2],
        at_start: bool,
        clocks: &[NodeClock],
        random: &mut RandomSource,
        bursts: &mut Vec<BurstTimes>,
    ) {
        let mut at = from + random.between(0, SECOND / 5);
        let end = to - SECOND / 4;
        if at_start {
            bursts.push(self.burst(at, (AT_ENDS, Which::First), clocks, random));
        }
        loop {
            at += PERIOD + random.between(-50_000_000, 50_000_000);
            if at >= end {
                break;
            }
            bursts.push(self.burst(at, (BETWEEN, Which::Between), clocks, random));
        }
        let at = end + random.between(0, SECOND / 8);
        bursts.push(self.burst(at, (AT_ENDS, Which::Last), clocks, random));
    }

    fn burst(
        &self,
        at: i64,
        (probes, which): (usize, Which),
        clocks: &[NodeClock],
        random: &mut RandomSource,
    ) -> BurstTimes {
        let [there, back] = &self.ways;
        let common = Common::new(self.noise, there.least + back.least, which, random);
        let mut trips: Vec<(f64, f64, i64)> = (0..probes)
            .map(|i| {
                let (mut out, mut home) =
                    (there.delay(random) + common.there, back.delay(random) + common.back);
                if common.waiting > 0.0 {
                    let waiting = common.waiting * (1.0 + 0.3 * exponential(random));
                    out += common.share * waiting;
                    home += (1.0 - common.share) * waiting;
                }
                (out, home, at + i as i64 * PACE)
            })
            .collect();
        let mut offsets: Vec<f64> = trips.iter().map(|t| (t.0 - t.1) / 2.0).collect();
        let spread = deviation(&mut offsets);
        trips.sort_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
        let [prober, answerer] = self.ends.map(|end| &clocks[end]);
        let best = trips.iter().take(self.kept).map(|&(there, back, sent)| {
            let got = sent + there as i64;
            let answered = got + random.between(1_000, 4_000);
            let mut read = |clock: &NodeClock, at: i64| clock.raw(at) + random.between(0, 25);
            Probe {
                t1: read(prober, sent),
                t2: read(answerer, got),
                t3: read(answerer, answered),
                t4: read(prober, answered + back as i64),
            }
        });
        let best = best.collect();
        let [from, to] = self.ends;
        BurstTimes { from, to, spread, best, kernel_times: self.noise != NoiseLevel::Busy }
    }
}

fn deviation(values: &mut [f64]) -> i64 {
    let middle = values.len() / 2;
    let median = *values.select_nth_unstable_by(middle, f64::total_cmp).1;
    values.iter_mut().for_each(|v| *v = (*v - median).abs());
    *values.select_nth_unstable_by(middle, f64::total_cmp).1 as i64
}
