//! Errors and bars where the truth is known. `ci/bench clocks` measures the same over many more jobs.

use rpd_clocks::{AlignChoice, AlignMethod, DomainFit, align};
use rpd_tests::clocks::{ClockScenario, CollectiveRate, Job, ProbeRate, TrueMoment};

/// Errors and bars over some seeds, ns.
struct Measured {
    errors: Vec<i64>,
    bars: Vec<i64>,
    within: usize,
}

fn measure(scenario: &ClockScenario, nodes: usize, seconds: i64, seeds: std::ops::Range<u64>) -> Measured {
    let mut measured = Measured { errors: Vec::new(), bars: Vec::new(), within: 0 };
    for seed in seeds {
        let job = Job::new(scenario, nodes, seconds, seed);
        let fits = align(&job.observations, AlignChoice::Auto);
        for moment in job.moments(20, seed) {
            let (error, bar) = (error(&fits, &moment), fits[moment.domain].bar_at(moment.local).unwrap());
            measured.errors.push(error);
            measured.bars.push(bar);
            measured.within += usize::from(error <= bar);
        }
    }
    measured.errors.sort_unstable();
    measured.bars.sort_unstable();
    measured
}

fn error(fits: &[DomainFit], moment: &TrueMoment) -> i64 {
    (fits[moment.domain].map.map(moment.local).ns() - moment.truth).abs()
}

fn at(sorted: &[i64], percent: usize) -> i64 {
    sorted[(sorted.len() - 1) * percent / 100]
}

#[test]
fn errors_are_below_some_us_and_bars_hold_them_whatever_is_wrong() {
    for scenario in &ClockScenario::ALL {
        let measured = measure(scenario, 24, 600, 900..903);
        let p95 = at(&measured.errors, 95);
        // Where everything is wrong at once, nothing says which source is.
        let limit = if scenario.name == "everything" { 5_000 } else { 1_500 };
        assert!(p95 < limit, "{}: p95 {p95} ns", scenario.name);
        let coverage = measured.within * 100 / measured.errors.len();
        assert!(coverage >= 85, "{}: {coverage} % within the bar", scenario.name);
        let bar = at(&measured.bars, 50);
        assert!(bar < 5_000, "{}: the usual bar is {bar} ns", scenario.name);
    }
}

#[test]
fn a_short_run_is_aligned_to_some_us() {
    let measured = measure(&ClockScenario::QUIET, 8, 30, 900..906);
    assert!(at(&measured.errors, 95) < 2_000, "p95 {} ns", at(&measured.errors, 95));
    assert!(measured.within * 100 >= measured.errors.len() * 90);
}

#[test]
fn two_hundred_and_fifty_six_nodes_are_aligned() {
    let began = std::time::Instant::now();
    let measured = measure(&ClockScenario::QUIET, 256, 120, 900..901);
    assert!(at(&measured.errors, 95) < 2_000, "p95 {} ns", at(&measured.errors, 95));
    assert!(began.elapsed().as_secs() < 120, "took {:?}", began.elapsed());
}

#[test]
fn a_jump_of_a_clock_is_found_and_both_sides_of_it_are_right() {
    let scenario = ClockScenario::ALL.iter().find(|s| s.jump).unwrap();
    for seed in 900..904 {
        let job = Job::new(scenario, 8, 600, seed);
        let fits = align(&job.observations, AlignChoice::Auto);
        let domain = job.clocks.iter().position(|c| c.jump().is_some()).unwrap();
        let (at, by) = job.clocks[domain].jump().unwrap();
        let steps = &fits[domain].steps;
        let step = steps.iter().find(|s| (s.by - by).abs() < 5_000);
        let step = step.unwrap_or_else(|| panic!("seed {seed}: a jump of {by} ns, but {steps:?}"));
        let (before, after) = (job.clocks[domain].boottime(at - 1), job.clocks[domain].boottime(at));
        assert!(
            step.after <= before && after <= step.before,
            "seed {seed}: {step:?}, jumped at {before} to {after}"
        );
        let far = |m: &TrueMoment| m.domain == domain && !(step.after..=step.before).contains(&m.local.0);
        let errors = job.moments(200, seed).into_iter().filter(far).map(|m| error(&fits, &m));
        assert!(errors.max().unwrap() < 10_000, "seed {seed}");
    }
}

#[test]
fn a_drift_of_100_ppm_is_found_to_1_ppm() {
    let scenario = ClockScenario { unsteered: true, ..ClockScenario::QUIET };
    let mut job = Job::new(&scenario, 3, 60, 900);
    let truth = |job: &Job| {
        let run = |clock: usize| {
            (job.clocks[clock].boottime(60_000_000_000) - job.clocks[clock].boottime(0)) as f64
        };
        (run(2) / run(0) - 1.0) * 1e6
    };
    let fits = align(&job.observations, AlignChoice::Auto);
    assert!((fits[2].drift_ppm - truth(&job)).abs() < 0.05, "{} and not {}", fits[2].drift_ppm, truth(&job));
    // The same node with a clock that is 100 ppm faster still.
    let start = job.observations.sets[2][0].clone();
    let faster = |time: &mut i64, origin: i64| *time += (*time - origin) / 10_000;
    for set in &mut job.observations.sets[2] {
        faster(&mut set.monotonic_raw, start.monotonic_raw);
        faster(&mut set.boottime, start.boottime);
    }
    for burst in &mut job.observations.bursts {
        for probe in burst.best.iter_mut() {
            let [a, b] =
                if burst.from == 2 { [&mut probe.t1, &mut probe.t4] } else { [&mut probe.t2, &mut probe.t3] };
            if burst.from == 2 || burst.to == 2 {
                faster(a, start.monotonic_raw);
                faster(b, start.monotonic_raw);
            }
        }
    }
    for attendance in
        job.observations.collectives.iter_mut().flat_map(|m| &mut m.intervals).filter(|a| a.domain == 2)
    {
        faster(&mut attendance.enter.0, start.boottime);
        faster(&mut attendance.exit.0, start.boottime);
    }
    let found = align(&job.observations, AlignChoice::Auto)[2].drift_ppm;
    assert!((found - truth(&job) - 100.0).abs() < 1.0, "{found}");
}

#[test]
fn the_method_is_what_there_was_to_see() {
    let methods = |scenario: &ClockScenario, by| -> Vec<AlignMethod> {
        align(&Job::new(scenario, 8, 60, 900).observations, by).iter().map(|f| f.method).collect()
    };
    let all = |method| [vec![AlignMethod::Reference], vec![method; 7]].concat();
    let probes_only = ClockScenario { collectives: CollectiveRate::Never, ..ClockScenario::QUIET };
    let collectives_only = ClockScenario { probes: ProbeRate::Nobody, ..ClockScenario::QUIET };
    let nothing = ClockScenario { probes: ProbeRate::Nobody, ..probes_only };
    assert_eq!(methods(&ClockScenario::QUIET, AlignChoice::Auto), all(AlignMethod::Fusion));
    assert_eq!(methods(&ClockScenario::QUIET, AlignChoice::Probes), all(AlignMethod::Probes));
    assert_eq!(methods(&ClockScenario::QUIET, AlignChoice::Collectives), all(AlignMethod::Collectives));
    assert_eq!(methods(&ClockScenario::QUIET, AlignChoice::Anchors), all(AlignMethod::RealtimeAnchors));
    assert_eq!(methods(&ClockScenario::QUIET, AlignChoice::None), all(AlignMethod::None));
    assert_eq!(methods(&probes_only, AlignChoice::Auto), all(AlignMethod::Probes));
    assert_eq!(methods(&probes_only, AlignChoice::Collectives), all(AlignMethod::None));
    assert_eq!(methods(&collectives_only, AlignChoice::Auto), all(AlignMethod::Collectives));
    assert_eq!(methods(&nothing, AlignChoice::Auto), all(AlignMethod::RealtimeAnchors));
    let mut bare = Job::new(&nothing, 8, 60, 900).observations;
    bare.sets.iter_mut().for_each(Vec::clear);
    let fits = align(&bare, AlignChoice::Auto);
    assert!(
        fits.iter().skip(1).all(|f| f.method == AlignMethod::None
            && f.map.is_identity()
            && f.median_error_bound().is_none())
    );
}

#[test]
fn bare_databases_are_aligned_by_their_collectives() {
    let scenario = ClockScenario { probes: ProbeRate::Nobody, ..ClockScenario::QUIET };
    for seed in 900..903 {
        let mut job = Job::new(&scenario, 8, 600, seed);
        job.observations.sets.iter_mut().for_each(Vec::clear);
        let fits = align(&job.observations, AlignChoice::Auto);
        assert!(fits.iter().skip(1).all(|f| f.method == AlignMethod::Collectives));
        let mut errors: Vec<i64> = job.moments(50, seed).iter().map(|m| error(&fits, m)).collect();
        errors.sort_unstable();
        assert!(at(&errors, 95) < 5_000, "seed {seed}: {} ns", at(&errors, 95));
    }
}

#[test]
fn a_node_without_probes_is_aligned_by_collectives_and_the_others_by_both() {
    let scenario = ClockScenario { probes: ProbeRate::AllButOne, ..ClockScenario::QUIET };
    let job = Job::new(&scenario, 9, 120, 900);
    let mut probed = [false; 9];
    job.observations.bursts.iter().for_each(|b| {
        probed[b.from] = true;
        probed[b.to] = true;
    });
    let fits = align(&job.observations, AlignChoice::Auto);
    for (domain, fit) in fits.iter().enumerate().skip(1) {
        assert_eq!(fit.probes > 0, probed[domain], "domain {domain}");
        // Through a node with probes it may be fusion, too.
        let without = !probed[domain] && fit.method == AlignMethod::Collectives;
        assert!(without || fit.method == AlignMethod::Fusion, "domain {domain}: {:?}", fit.method);
    }
}

#[test]
fn beyond_what_was_seen_the_bar_grows() {
    let job = Job::new(&ClockScenario::QUIET, 3, 60, 900);
    let fit = &align(&job.observations, AlignChoice::Auto)[1];
    let at = |seconds: i64| {
        fit.bar_at(rpd_shard::model::LocalNs(job.clocks[1].boottime(seconds * 1_000_000_000))).unwrap()
    };
    assert!(at(30) < 5_000);
    let later = rpd_shard::model::LocalNs(job.clocks[1].boottime(0) + 3_600_000_000_000);
    assert!(fit.bar_at(later).unwrap() > 10 * at(30));
}
