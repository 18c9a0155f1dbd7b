//! Nodes that hang together but have no way to the reference.

use rpd_clocks::{AlignChoice, AlignMethod, align};
use rpd_tests::clocks::{ClockScenario, CollectiveRate, Job};

/// No probes go between the first four nodes and the others, and there are no collectives.
fn halves(seed: u64) -> Job {
    let scenario = ClockScenario { collectives: CollectiveRate::Never, ..ClockScenario::QUIET };
    let mut job = Job::new(&scenario, 8, 60, seed);
    // 4 is the top of the tree of 5, 6 and 7.
    job.observations.bursts.retain(|b| (b.from < 4) == (b.to < 4));
    job
}

#[test]
fn a_part_without_a_way_to_the_reference_keeps_together() {
    for seed in 980..986 {
        let job = halves(seed);
        let fits = align(&job.observations, AlignChoice::Auto);
        let methods: Vec<AlignMethod> = fits.iter().map(|f| f.method).collect();
        assert!(methods[1..4].iter().all(|m| *m == AlignMethod::Probes), "{methods:?}");
        assert!(methods[4..].iter().all(|m| *m == AlignMethod::RealtimeAnchors), "{methods:?}");
        let mut last: Option<(i64, i64)> = None;
        for moment in job.moments(20, seed).iter().filter(|m| m.domain >= 4) {
            let fit = &fits[moment.domain];
            let off = moment.truth - fit.map.map(moment.local).ns();
            let bar = fit.bar_at(moment.local).unwrap();
            assert!(off.abs() <= bar, "{off} of {bar} ns");
            assert!(fit.bars.iter().all(|b| b.certain_bounds.is_none()));
            // What the wall clock is off by, all of the part is, but for the drift of a clock that NTP steers.
            if let Some((domain, before)) = last.filter(|(domain, _)| *domain != moment.domain as i64) {
                assert!((off - before).abs() < 400_000, "{domain} and {}: {off} and {before}", moment.domain);
            }
            last = Some((moment.domain as i64, off));
        }
        // At one moment they agree far better than with the reference.
        let apart = |domain: usize, at: i64| {
            let local = rpd_shard::model::LocalNs(job.clocks[domain].boottime(at));
            job.clocks[0].boottime(at) - fits[domain].map.map(local).ns()
        };
        for at in [5, 30, 55].map(|s| s * 1_000_000_000) {
            for domain in 5..8 {
                let off = (apart(domain, at) - apart(4, at)).abs();
                assert!(off < 3_000, "seed {seed}: {domain} is {off} ns off 4");
            }
        }
        // Nothing of it hangs on the order of the domains.
        let mut shuffled = job.observations.clone();
        shuffled.bursts.reverse();
        assert_eq!(align(&shuffled, AlignChoice::Auto), fits);
    }
}
