//! Nodes that share cores: who leaves a collective when is a matter of scheduling, and some are always favoured.

use rpd_clocks::{AlignChoice, AlignMethod, align};
use rpd_shard::model::LocalNs;
use rpd_tests::clocks::{ClockScenario, CollectiveRate, Job, ProbeRate};
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
