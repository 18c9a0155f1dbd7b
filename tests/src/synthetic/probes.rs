//! Probes between the nodes of a run: what their agents would record of its clocks.

use super::clock::RUN_START;
use super::random::RandomSource;
use super::run::{ModelRank, Run};
use rpd_shard::record::{Probe, ProbeBurst};

/// Probes of the first and the last burst, and of those in between.
const AT_ENDS: u32 = 200;
const BETWEEN: u32 = 20;
/// Between bursts, ns.
const PERIOD: i64 = 5_000_000_000;
/// From one probe of a burst to the next, and from the end of the last burst to that of the run, ns.
const PACE: i64 = 100_000;
const MARGIN: i64 = 30_000_000;
/// The way in one direction takes at least this long, ns.
const WAY: i64 = 7_000;

impl Run {
    /// The bursts that the collector of a rank recorded, in the order of their times: those of its node if it is
    /// the lowest rank there that left something. Its agent asks its parent in a binomial tree over the nodes.
    pub fn probes(&self, rank: &ModelRank) -> Vec<ProbeBurst> {
        let mut of_node = self.present().filter(|other| other.node == rank.node);
        if of_node.next() != Some(rank) {
            return Vec::new();
        }
        // Ranks stand in the order of their nodes.
        let mut nodes: Vec<usize> = self.present().map(|rank| rank.node).collect();
        nodes.dedup();
        match nodes.iter().position(|node| *node == rank.node) {
            Some(place @ 1..) => {
                let parent = nodes[place & (place - 1)];
                self.probes_between(rank.node, parent, [0, self.length()])
            }
            _ => Vec::new(),
        }
    }

    /// The bursts of one node that asks another one from one time of the run to another, ns: 200 probes at both
    /// ends, 20 every 5 s.
    pub fn probes_between(&self, from: usize, to: usize, [begin, end]: [i64; 2]) -> Vec<ProbeBurst> {
        let mut random = RandomSource::new(&[self.config.seed, 7, from as u64, to as u64]);
        let (begin, end) = (RUN_START + begin, RUN_START + end - MARGIN);
        let mut at = begin + random.between(1_000_000, 10_000_000);
        let mut bursts = vec![self.burst(from, to, at, AT_ENDS, &mut random)];
        loop {
            at += PERIOD + random.between(-50_000_000, 50_000_000);
            if at >= end {
                break;
            }
            bursts.push(self.burst(from, to, at, BETWEEN, &mut random));
        }
        bursts.push(self.burst(from, to, end, AT_ENDS, &mut random));
        bursts
    }

    fn burst(&self, from: usize, to: usize, at: i64, sent: u32, random: &mut RandomSource) -> ProbeBurst {
        let [prober, answerer] = [from, to].map(|node| &self.nodes[node].clock);
        let mut probes: Vec<Probe> = (0..i64::from(sent))
            .map(|i| {
                let sent = at + i * PACE;
                let got = sent + WAY + random.duration(2_000);
                let answered = got + random.between(1_000, 4_000);
                let back = answered + WAY + random.duration(2_000);
                Probe {
                    t1: prober.raw(sent),
                    t2: answerer.raw(got),
                    t3: answerer.raw(answered),
                    t4: prober.raw(back),
                }
            })
            .collect();
        let spread = deviation(probes.iter().map(Probe::offset).collect());
        probes.sort_by_key(|probe| (probe.round_trip(), probe.t1));
        probes.truncate(ProbeBurst::MOST_KEPT);
        let (from, to) = (prober.domain.clone(), answerer.domain.clone());
        ProbeBurst { from, to, sent, answered: sent, spread, best: probes, kernel_times: false }
    }
}

/// Median absolute deviation.
fn deviation(mut values: Vec<i64>) -> i64 {
    let middle = values.len() / 2;
    let median = *values.select_nth_unstable(middle).1;
    values.iter_mut().for_each(|value| *value = (*value - median).abs());
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::super::SyntheticRun;

    #[test]
    fn bursts_are_sound_and_as_close_to_the_truth_as_they_say() {
        let config = SyntheticRun {
            nodes: 4,
            max_drift_ppb: 20_000,
            events_per_rank: 30_000,
            ..SyntheticRun::default()
        };
        let run = config.plan();
        assert!(run.probes(&run.ranks[0]).is_empty() && run.probes(&run.ranks[3]).is_empty());
        // Node 3 asks node 2, that one node 0.
        for (rank, parent) in [(2, 0), (4, 0), (6, 2)] {
            let bursts = run.probes(&run.ranks[rank]);
            assert_eq!(bursts.len(), 4, "12 s");
            let [own, other] = [rank / 2, parent].map(|node| &run.nodes[node].clock);
            for burst in &bursts {
                assert!(burst.is_sound() && burst.to == other.domain && burst.best.len() == 8);
                let probe = &burst.best[0];
                // Time runs on a little while a probe is under way; the drifts make 1 ns of it.
                let truth = other.raw(own.at_raw(probe.t1)) - probe.t1;
                assert!((probe.offset() - truth).abs() <= probe.round_trip().unwrap() / 2 + 2, "{burst:?}");
            }
        }
    }
}
