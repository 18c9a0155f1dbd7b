//! Nodes that share cores: scheduling decides when a rank leaves a collective, and always favours some.

use rpd_clocks::{AlignChoice, AlignMethod, align};
use rpd_shard::model::LocalNs;
use rpd_tests::clocks::{ClockScenario, CollectiveRate, Job, NoiseLevel, ProbeRate};
use rpd_tests::synthetic::RandomSource;

/// What scheduling adds to an exit, ns.
const SLICE: f64 = 200e3;

/// A job of which each node is late in leaving, always by something and mostly by more.
fn crowded(seed: u64) -> Job {
    let scenario = ClockScenario {
        probes: ProbeRate::Nobody,
        collectives: CollectiveRate::Densely,
        ..ClockScenario::QUIET
    };
    let mut job = Job::new(&scenario, 4, 20, seed);
    let mut random = RandomSource::new(&[seed, 77]);
    let always: Vec<f64> = (0..4).map(|_| SLICE * random.between(0, 1_000) as f64 / 1e3).collect();
    for attendance in job.observations.collectives.iter_mut().flat_map(|m| &mut m.intervals) {
        let more = -SLICE * (random.between(1, 1_000) as f64 / 1e3).ln();
        attendance.exit = LocalNs(attendance.exit.0 + (always[attendance.domain as usize] + more) as i64);
    }
    job
}

#[test]
fn exits_that_scheduling_spreads_give_a_bar_that_holds() {
    let (mut within, mut all, mut worst) = (0, 0, 0);
    for seed in 950..970 {
        let job = crowded(seed);
        let fits = align(&job.observations, AlignChoice::Collectives);
        for moment in job.moments(20, seed) {
            let fit = &fits[moment.domain];
            assert_eq!(fit.method, AlignMethod::Collectives);
            let off = moment.truth - fit.map.map(moment.local).ns();
            let bar = fit.bar_at(moment.local).unwrap();
            assert!(bar < 1_500_000, "{bar} ns");
            for bound in fit.bars.iter().filter_map(|b| b.certain_bounds) {
                assert!(bound.0 <= bound.1);
            }
            (all, worst) = (all + 1, off.abs().max(worst));
            within += u64::from(off.abs() <= bar);
        }
    }
    // There is something to hold.
    assert!(worst > 80_000, "{worst} ns");
    assert!(within * 100 >= all * 95, "{within} of {all}");
}

/// Within an hour, the rate of a crystal changes by more than spread exits can show. Bounds of a node
/// without probes must leave room for that. These are seeds of `ci/bench clocks` in which they did not.
#[test]
fn certain_bounds_of_an_unprobed_node_hold_for_an_hour() {
    let scenario = ClockScenario { probes: ProbeRate::AllButOne, ..ClockScenario::QUIET };
    let mut bounded = 0;
    for seed in [4, 7] {
        let job = Job::with_noise(&scenario, NoiseLevel::Busy, 24, 3_600, seed);
        let fits = align(&job.observations, AlignChoice::Auto);
        for moment in job.moments(50, seed) {
            let fit = &fits[moment.domain];
            let off = moment.truth - fit.map.map(moment.local).ns();
            let after = fit.bars.partition_point(|b| b.local <= moment.local.0);
            let around = after.checked_sub(1).and_then(|i| Some([fit.bars.get(i)?, fit.bars.get(after)?]));
            let Some([Some(a), Some(b)]) = around.map(|bars| bars.map(|bar| bar.certain_bounds)) else {
                continue;
            };
            let (low, high) = (a.0.min(b.0), a.1.max(b.1));
            assert!(low <= off && off <= high, "seed {seed}: {off} ns, bounds {low} to {high} ns");
            bounded += 1;
        }
    }
    assert!(bounded > 1_500, "{bounded}");
}
