//! Observations that no collector makes: no panic, no hang, and an error bound that admits the unknown.

use proptest::prelude::*;
use rpd_clocks::{
    AlignChoice, BurstTimes, ClockObservations, CollectiveObservation, ObservedWaits, RankInterval, align,
};
use rpd_shard::model::LocalNs;
use rpd_shard::record::{ClockDomain, ClockSet, Probe};
use rpd_tests::clocks::{ClockScenario, Job};
use rpd_tests::synthetic::RandomSource;

/// Small, usual and impossible times.
fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX),
        Just(0),
        -1_000_i64..1_000,
        0_i64..4_000_000_000_000,
        1_700_000_000_000_000_000_i64..1_800_000_000_000_000_000,
        any::<i64>(),
    ]
}

fn domain(number: usize) -> ClockDomain {
    ClockDomain { boot_id: format!("{number}"), time_namespace: 0 }
}

fn set() -> impl Strategy<Value = ClockSet> {
    (time(), time(), time(), time(), time()).prop_map(
        |(boottime, monotonic_raw, monotonic, realtime, bracket)| ClockSet {
            domain: domain(0),
            boottime,
            monotonic_raw,
            monotonic,
            realtime,
            bracket,
        },
    )
}

fn burst() -> impl Strategy<Value = BurstTimes> {
    let probe = (time(), time(), time(), time()).prop_map(|(t1, t2, t3, t4)| Probe { t1, t2, t3, t4 });
    (0_usize..7, 0_usize..7, time(), prop::collection::vec(probe, 0..9))
        .prop_map(|(from, to, spread, best)| BurstTimes { from, to, spread, best, kernel_times: false })
}

fn meeting() -> impl Strategy<Value = CollectiveObservation> {
    let waits = prop_oneof![
        Just(ObservedWaits::AllForAll),
        Just(ObservedWaits::Nothing),
        (0_u32..8).prop_map(ObservedWaits::AllForRoot),
        (0_u32..8).prop_map(ObservedWaits::RootForAll),
    ];
    let attendance = (0_u32..7, 0_u32..8, time(), time()).prop_map(|(domain, rank, enter, exit)| {
        RankInterval { domain, rank, enter: LocalNs(enter), exit: LocalNs(exit) }
    });
    (waits, prop::collection::vec(attendance, 0..12))
        .prop_map(|(waits, intervals)| CollectiveObservation { waits, intervals })
}

fn observations() -> impl Strategy<Value = ClockObservations> {
    (
        0_usize..8,
        prop::collection::vec(prop::collection::vec(set(), 0..12), 0..7),
        prop::collection::vec(burst(), 0..40),
        prop::collection::vec(meeting(), 0..40),
    )
        .prop_map(|(reference, sets, bursts, collectives)| ClockObservations {
            domains: (0..4).map(domain).collect(),
            bridges: vec![domain(4)],
            reference,
            // Of nodes without clock sets, and of some that have them or are not there.
            walls: (2..6).map(|place| (place, (i64::MIN, i64::MAX))).collect(),
            sets,
            bursts,
            collectives,
        })
}

fn try_all(observations: &ClockObservations) {
    for by in [
        AlignChoice::Auto,
        AlignChoice::Probes,
        AlignChoice::Collectives,
        AlignChoice::Anchors,
        AlignChoice::None,
    ] {
        let mut fits = align(observations, by);
        assert_eq!(fits.len(), observations.domains.len());
        for fit in &fits {
            for time in [i64::MIN, -1, 0, 1, 1_000_000_000_000, i64::MAX] {
                assert!(fit.bar_at(LocalNs(time)).is_none_or(|bar| bar >= 0), "{fit:?}");
                fit.map.map(LocalNs(time));
            }
            assert!(fit.drift_ppm.is_finite());
        }
        let before = observations.causality(&fits);
        let after = observations.repair_causality(&mut fits).left;
        assert!(after.violations <= before.violations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_alone(observations in observations()) {
        try_all(&observations);
    }

    #[test]
    fn garbage_among_observations(garbage in observations(), seed: u64) {
        let mut job = Job::new(&ClockScenario::QUIET, 5, 20, seed);
        job.observations.bursts.extend(garbage.bursts);
        job.observations.collectives.extend(garbage.collectives);
        job.observations.sets.iter_mut().zip(garbage.sets).for_each(|(sets, more)| sets.extend(more));
        try_all(&job.observations);
    }
}

#[test]
fn one_probe_alone_gives_a_wide_bar() {
    let mut job = Job::new(&ClockScenario::QUIET, 2, 600, 900);
    job.observations.collectives.clear();
    job.observations.bursts.truncate(1);
    job.observations.bursts[0].best.truncate(1);
    let fits = align(&job.observations, AlignChoice::Auto);
    assert_eq!(fits[1].probes, 1);
    // 100 ppm for ten minutes.
    let end = LocalNs(job.clocks[1].boottime(600_000_000_000));
    assert!(fits[1].bar_at(end).unwrap() > 50_000_000, "{:?}", fits[1].bar_at(end));
    for moment in job.moments(50, 1) {
        let error = fits[1].map.map(moment.local).ns() - moment.truth;
        assert!(error.abs() <= fits[1].bar_at(moment.local).unwrap());
    }
}

#[test]
fn bursts_that_contradict_each_other_widen_the_bar() {
    let mut job = Job::new(&ClockScenario::QUIET, 2, 600, 900);
    job.observations.collectives.clear();
    let calm = align(&job.observations, AlignChoice::Auto)[1].median_error_bound().unwrap();
    let mut random = RandomSource::new(&[1]);
    for burst in &mut job.observations.bursts {
        let wrong = random.between(0, 1_000_000);
        burst.best.iter_mut().for_each(|p| {
            p.t2 += wrong;
            p.t3 += wrong;
        });
    }
    let fit = &align(&job.observations, AlignChoice::Auto)[1];
    assert!(fit.median_error_bound().unwrap() > 20 * calm, "{calm} and {:?}", fit.median_error_bound());
    assert!(fit.contradictions > 0);
}

#[test]
fn collectives_that_cannot_be_matched_are_contradictions() {
    let mut job = Job::new(&ClockScenario::QUIET, 3, 120, 900);
    assert_eq!(align(&job.observations, AlignChoice::Auto)[1].contradictions, 0);
    // Of one collective, domain 1 reports another one: a second later.
    let meeting = job
        .observations
        .collectives
        .iter_mut()
        .filter(|m| m.waits == ObservedWaits::AllForAll && m.intervals.iter().any(|a| a.domain == 1));
    for attendance in meeting.skip(20).take(1).flat_map(|m| &mut m.intervals).filter(|a| a.domain == 1) {
        attendance.enter.0 += 1_000_000_000;
        attendance.exit.0 += 1_000_000_000;
    }
    assert!(align(&job.observations, AlignChoice::Auto)[1].contradictions > 0);
}
