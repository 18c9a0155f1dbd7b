//! Jobs that are over before a second is.

use rpd_clocks::{AlignChoice, AlignMethod, ClockObservations, align};
use rpd_tests::clocks::{ClockScenario, CollectiveRate, Job};

/// What was seen of a job in its first ms.
fn first(job: &Job, ms: i64) -> ClockObservations {
    let end: Vec<(i64, i64)> =
        job.clocks.iter().map(|c| (c.boottime(ms * 1_000_000), c.raw(ms * 1_000_000))).collect();
    let mut seen = job.observations.clone();
    for (sets, end) in seen.sets.iter_mut().zip(&end) {
        let first = sets[0].clone();
        sets.retain(|s| s.boottime <= end.0);
        if sets.is_empty() {
            sets.push(first);
        }
    }
    seen.bursts.retain(|b| b.best.iter().all(|p| p.t4 <= end[b.from].1));
    seen.collectives.retain(|m| m.intervals.iter().all(|a| a.exit.0 <= end[a.domain as usize].0));
    seen
}

#[test]
fn what_is_over_in_less_than_a_second_is_aligned_with_bars_that_hold() {
    let scenario = ClockScenario { collectives: CollectiveRate::Densely, ..ClockScenario::QUIET };
    for ms in [50, 250, 400, 900] {
        let (mut within, mut all, mut widest) = (0, 0, 0);
        for seed in 990..1_002 {
            let job = Job::new(&scenario, 6, 2, seed);
            let seen = first(&job, ms);
            for by in [AlignChoice::Auto, AlignChoice::Probes, AlignChoice::Collectives, AlignChoice::Anchors]
            {
                let fits = align(&seen, by);
                assert_eq!(fits[0].method, AlignMethod::Reference);
                for (domain, fit) in fits.iter().enumerate().skip(1) {
                    assert!(fit.drift_ppm.is_finite());
                    match fit.method {
                        AlignMethod::None => assert!(fit.bars.is_empty() && by != AlignChoice::Auto),
                        AlignMethod::Probes => assert!(fit.probes > 0 || fits.iter().any(|f| f.probes > 0)),
                        AlignMethod::Collectives => assert!(fit.collectives > 0 && fit.probes == 0),
                        _ => {}
                    }
                    for at in [0, ms / 2, ms].map(|ms| ms * 1_000_000) {
                        let local = rpd_shard::model::LocalNs(job.clocks[domain].boottime(at));
                        let off = job.clocks[0].boottime(at) - fit.map.map(local).ns();
                        let Some(bar) = fit.bar_at(local) else { continue };
                        assert!(bar > 0, "{fit:?}");
                        (all, widest) = (all + 1, bar.max(widest));
                        within += u64::from(off.abs() <= bar);
                    }
                }
            }
        }
        assert!(within * 100 >= all * 93, "{ms} ms: {within} of {all}");
        assert!(widest < 1_000_000_000, "{ms} ms: {widest} ns");
    }
}
