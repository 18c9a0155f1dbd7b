use super::node::{ClockCrystal, NodeClock, SECOND};
use super::scenario::{ClockScenario, NoiseLevel};
use super::{collectives, network};
use crate::synthetic::RandomSource;
use rpd_clocks::ClockObservations;
use rpd_shard::model::LocalNs;
use std::collections::BTreeMap;

/// A job with clocks of which the truth is known. Node 0 is the reference.
#[derive(Clone, Debug)]
pub struct Job {
    /// What its collectors saw; the domains are the nodes.
    pub observations: ClockObservations,
    /// The truth.
    pub clocks: Vec<NodeClock>,
    /// When each node came, ns of true time.
    pub joined: Vec<i64>,
    /// Length of the run, s.
    pub seconds: i64,
}

/// One moment on one node.
#[derive(Clone, Copy, Debug)]
pub struct TrueMoment {
    /// The node.
    pub domain: usize,
    /// True time, ns.
    pub at: i64,
    /// Its BOOTTIME.
    pub local: LocalNs,
    /// BOOTTIME of the reference, ns: what a perfect map makes of it.
    pub truth: i64,
}

impl Job {
    /// The job of a seed in a quiet network: the same one, every time.
    pub fn new(scenario: &ClockScenario, nodes: usize, seconds: i64, seed: u64) -> Job {
        Job::with_noise(scenario, NoiseLevel::Quiet, nodes, seconds, seed)
    }

    /// The same with more noise.
    pub fn with_noise(
        scenario: &ClockScenario,
        noise: NoiseLevel,
        nodes: usize,
        seconds: i64,
        seed: u64,
    ) -> Job {
        let mut random = RandomSource::new(&[seed, seconds as u64, 5]);
        let jumper = scenario.jump.then(|| 1 + random.index(nodes.max(2) - 1));
        let late = scenario.late_node.then(|| 1 + random.index(nodes.max(2) - 1));
        let end = seconds * SECOND;
        let clocks: Vec<NodeClock> = (0..nodes)
            .map(|node| {
                let jump_at = (jumper == Some(node)).then(|| random.between(end / 4, end * 3 / 4));
                let crystal = ClockCrystal {
                    seconds,
                    walk: scenario.walk,
                    swing: scenario.swing,
                    steered: !scenario.unsteered,
                    ntp_steps: scenario.ntp_steps,
                    jump_at,
                };
                NodeClock::new(node, &crystal, &mut random)
            })
            .collect();
        let joined: Vec<i64> =
            (0..nodes).map(|n| if late == Some(n) { random.between(end / 4, end / 2) } else { 0 }).collect();
        let sets = clocks.iter().zip(&joined).map(|(clock, &from)| {
            let mut at = from + random.between(0, SECOND / 10);
            let mut sets = Vec::new();
            while at < end - SECOND / 10 {
                sets.push(clock.set(at, &mut random));
                at += 5 * SECOND + random.between(-20_000_000, 20_000_000);
            }
            sets.push(clock.set(end, &mut random));
            sets
        });
        let sets = sets.collect();
        let observations = ClockObservations {
            domains: clocks.iter().map(|c| c.domain.clone()).collect(),
            bridges: Vec::new(),
            reference: 0,
            sets,
            walls: BTreeMap::new(),
            bursts: network::bursts((scenario, noise), &clocks, &joined, seconds, &mut random),
            collectives: collectives::observe((scenario, noise), &clocks, &joined, seconds, &mut random),
        };
        Job { observations, clocks, joined, seconds }
    }

    /// Moments of every node but the reference, while it is there.
    pub fn moments(&self, of_each: usize, seed: u64) -> Vec<TrueMoment> {
        let mut random = RandomSource::new(&[seed, 6]);
        let mut moments = Vec::with_capacity(of_each * self.clocks.len());
        for (domain, clock) in self.clocks.iter().enumerate().skip(1) {
            for _ in 0..of_each {
                let at = random.between(self.joined[domain], self.seconds * SECOND);
                let (local, truth) = (LocalNs(clock.boottime(at)), self.clocks[0].boottime(at));
                moments.push(TrueMoment { domain, at, local, truth });
            }
        }
        moments
    }
}
