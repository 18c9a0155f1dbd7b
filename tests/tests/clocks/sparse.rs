//! Short jobs, few observations, and some that are missing: aligned as well as they allow, and no bar that
//! promises more.

use rpd_clocks::{AlignChoice, AlignMethod, ClockObservations, DomainFit, ObservedWaits, align};
use rpd_shard::model::LocalNs;
use rpd_tests::clocks::{ClockScenario, CollectiveRate, Job, ProbeRate, TrueMoment};

const BY_COLLECTIVES: ClockScenario = ClockScenario { probes: ProbeRate::Nobody, ..ClockScenario::QUIET };

/// Errors of the moments that are `of` interest, sorted, ns; and how many of them are within their bars.
fn judge(fits: &[DomainFit], moments: &[TrueMoment], of: impl Fn(&TrueMoment) -> bool) -> (Vec<i64>, usize) {
    let mut within = 0;
    let mut errors = Vec::new();
    for moment in moments.iter().filter(|m| of(m)) {
        let fit = &fits[moment.domain];
        let error = (fit.map.map(moment.local).ns() - moment.truth).abs();
        within += usize::from(error <= fit.bar_at(moment.local).unwrap());
        errors.push(error);
    }
    errors.sort_unstable();
    (errors, within)
}

/// Over some seeds: p95 of the errors, ns, and the percentage within the bars.
fn measure(
    scenario: &ClockScenario,
    nodes: usize,
    seconds: i64,
    by: AlignChoice,
    methods: &[AlignMethod],
) -> (i64, usize) {
    let (mut errors, mut within) = (Vec::new(), 0);
    for seed in 900..912 {
        let job = Job::new(scenario, nodes, seconds, seed);
        let fits = align(&job.observations, by);
        let other = fits.iter().skip(1).find(|f| !methods.contains(&f.method));
        assert!(other.is_none(), "seed {seed}: {other:?}");
        let (more, held) = judge(&fits, &job.moments(20, seed), |_| true);
        errors.extend(more);
        within += held;
    }
    errors.sort_unstable();
    (errors[(errors.len() - 1) * 95 / 100], within * 100 / errors.len())
}

#[test]
fn two_nodes_that_take_turns_in_coming_last_are_aligned() {
    let (p95, within) = measure(&BY_COLLECTIVES, 2, 60, AlignChoice::Auto, &[AlignMethod::Collectives]);
    assert!(p95 < 2_500, "p95 {p95} ns");
    assert!(within >= 90, "{within} %");
}

#[test]
fn collectives_of_one_second_tell_offset_and_drift() {
    let scenario = ClockScenario { collectives: CollectiveRate::Densely, ..BY_COLLECTIVES };
    for nodes in [2, 3, 8] {
        let (p95, within) = measure(&scenario, nodes, 2, AlignChoice::Auto, &[AlignMethod::Collectives]);
        assert!(p95 < 6_000, "{nodes} nodes: p95 {p95} ns");
        assert!(within >= 90, "{nodes} nodes: {within} %");
    }
}

#[test]
fn three_seconds_between_two_bursts_of_probes_are_enough() {
    let (p95, within) = measure(&ClockScenario::QUIET, 8, 3, AlignChoice::Probes, &[AlignMethod::Probes]);
    assert!(p95 < 2_000, "p95 {p95} ns");
    assert!(within >= 90, "{within} %");
    let (all, within) = measure(
        &ClockScenario { collectives: CollectiveRate::Densely, ..ClockScenario::QUIET },
        8,
        3,
        AlignChoice::Auto,
        // If the parent of a node is placed after it, its probes are in the place of the parent.
        &[AlignMethod::Fusion, AlignMethod::Collectives],
    );
    assert!(all < 2_000, "p95 {all} ns");
    assert!(within >= 90, "{within} %");
}

#[test]
fn paths_that_are_asymmetric_do_not_spoil_what_collectives_tell_in_half_a_minute() {
    let scenario = ClockScenario { asymmetry: true, ..ClockScenario::QUIET };
    let by_probes = measure(&scenario, 24, 30, AlignChoice::Probes, &[AlignMethod::Probes]).0;
    let any = [AlignMethod::Fusion, AlignMethod::Probes, AlignMethod::Collectives];
    let (p95, within) = measure(&scenario, 24, 30, AlignChoice::Auto, &any);
    assert!(p95 * 2 < by_probes, "p95 {p95} ns, by probes {by_probes} ns");
    assert!(within >= 90, "{within} %");
}

#[test]
fn a_node_that_always_comes_last_has_a_bar_that_knows() {
    for (nodes, limit) in [(2, 12_000), (8, 6_000)] {
        let (mut errors, mut within) = (Vec::new(), 0);
        for seed in 900..908 {
            let mut job = Job::new(&BY_COLLECTIVES, nodes, 60, seed);
            job.observations.collectives.retain(|m| m.waits == ObservedWaits::AllForAll);
            for meeting in &mut job.observations.collectives {
                // Node 1 comes half a millisecond later than it did, and needs 6 us; the others leave when it has come.
                let mine = |a: &&rpd_clocks::RankInterval| a.domain == 1;
                let entered = meeting.intervals.iter().filter(mine).map(|a| a.enter.0).max();
                let left = meeting.intervals.iter().filter(mine).map(|a| a.exit.0).min();
                let (Some(entered), Some(left)) = (entered, left) else { continue };
                let waited = (left - entered - 6_000).max(0);
                for attendance in &mut meeting.intervals {
                    attendance.exit.0 += 500_000;
                    if attendance.domain == 1 {
                        attendance.enter.0 += 500_000 + waited;
                    }
                }
            }
            let fits = align(&job.observations, AlignChoice::Auto);
            let (more, held) = judge(&fits, &job.moments(20, seed), |m| m.domain == 1);
            errors.extend(more);
            within += held;
        }
        errors.sort_unstable();
        let p95 = errors[(errors.len() - 1) * 95 / 100];
        assert!(p95 < limit, "{nodes} nodes: p95 {p95} ns");
        assert!(within * 100 >= errors.len() * 90, "{nodes} nodes: {within} of {}", errors.len());
    }
}

#[test]
fn where_probes_end_collectives_go_on() {
    for seed in 900..904 {
        let mut job = Job::new(&ClockScenario::QUIET, 8, 120, seed);
        let clocks = job.clocks.clone();
        job.observations.bursts.retain(|b| b.best[0].t1 < clocks[b.from].raw(60_000_000_000));
        let moments = job.moments(40, seed);
        let late = |m: &TrueMoment| m.local.0 > clocks[m.domain].boottime(75_000_000_000);
        let (errors, within) = judge(&align(&job.observations, AlignChoice::Auto), &moments, late);
        assert!(errors[errors.len() * 95 / 100] < 3_000, "seed {seed}: {:?}", errors.last());
        assert!(within * 100 >= errors.len() * 90, "seed {seed}: {within} of {}", errors.len());
        // Probes alone are good for some time after the last one, and the bar says how long.
        let fits = align(&job.observations, AlignChoice::Probes);
        let (errors, within) = judge(&fits, &moments, late);
        assert!(within * 100 >= errors.len() * 90, "seed {seed}: {within} of {}", errors.len());
        let bar =
            |seconds: i64| fits[1].bar_at(LocalNs(clocks[1].boottime(seconds * 1_000_000_000))).unwrap();
        assert!(2 * bar(118) > 3 * bar(40), "{} and {}", bar(118), bar(40));
    }
}

#[test]
fn a_part_of_the_tree_without_a_way_to_the_reference_gets_no_more_than_anchors() {
    let scenario = ClockScenario { collectives: CollectiveRate::Never, ..ClockScenario::QUIET };
    let mut job = Job::new(&scenario, 8, 60, 900);
    // 4 is the parent of 5 and 6, and 6 that of 7.
    job.observations.bursts.retain(|b| (b.from, b.to) != (4, 0));
    let fits = align(&job.observations, AlignChoice::Auto);
    for (domain, fit) in fits.iter().enumerate().skip(1) {
        let expected = if domain < 4 { AlignMethod::Probes } else { AlignMethod::RealtimeAnchors };
        assert_eq!(fit.method, expected, "domain {domain}");
    }
    let (errors, within) = judge(&fits, &job.moments(20, 900), |_| true);
    assert!(within * 100 >= errors.len() * 90, "{within} of {}", errors.len());
}

#[test]
fn collectives_with_a_root_alone_are_no_more_than_bounds() {
    let mut job = Job::new(&BY_COLLECTIVES, 4, 60, 900);
    job.observations.collectives.retain(|m| m.waits != ObservedWaits::AllForAll);
    assert!(job.observations.collectives.len() > 10);
    let fits = align(&job.observations, AlignChoice::Auto);
    assert!(fits.iter().skip(1).all(|f| f.method == AlignMethod::RealtimeAnchors));
    let (errors, within) = judge(&fits, &job.moments(20, 900), |_| true);
    assert_eq!(within, errors.len());
}

#[test]
fn nodes_that_probed_a_node_without_a_shard_are_aligned_through_it() {
    for seed in 900..904 {
        let job = Job::new(
            &ClockScenario { collectives: CollectiveRate::Never, ..ClockScenario::QUIET },
            8,
            60,
            seed,
        );
        // Each node probes node 0 at some time, or a node that does. Of node 0, only the observations of others
        // are left.
        let there = 7;
        let place = |node: usize| node.checked_sub(1).unwrap_or(there);
        let mut observations = ClockObservations {
            domains: job.observations.domains[1..].to_vec(),
            bridges: vec![job.observations.domains[0].clone()],
            reference: 0,
            sets: job.observations.sets[1..].to_vec(),
            walls: Default::default(),
            bursts: job.observations.bursts.clone(),
            collectives: Vec::new(),
        };
        for burst in &mut observations.bursts {
            (burst.from, burst.to) = (place(burst.from), place(burst.to));
        }
        let fits = align(&observations, AlignChoice::Auto);
        assert_eq!(fits.len(), there);
        for moment in job.moments(20, seed).iter().filter(|moment| moment.domain > 1) {
            let fit = &fits[place(moment.domain)];
            assert_eq!(fit.method, AlignMethod::Probes, "seed {seed}, node {}", moment.domain);
            let error = (fit.map.map(moment.local).ns() - job.clocks[1].boottime(moment.at)).abs();
            assert!(error < 10_000, "seed {seed}, node {}: {error} ns", moment.domain);
        }
        observations.bridges.clear();
        let alone = align(&observations, AlignChoice::Auto);
        assert!(
            alone.iter().any(|fit| fit.method == AlignMethod::RealtimeAnchors),
            "seed {seed}: nothing to bridge"
        );
    }
}
