//! Noise of busy nodes and of cards that moderate interrupts: collectives that mislead are not used, and bounds hold.

use rpd_clocks::{AlignChoice, AlignMethod, BurstTimes, align};
use rpd_tests::clocks::{ClockScenario, Job, NoiseLevel};
use twox_hash::XxHash3_64;

/// Nodes of a job and moments of each.
const NODES: usize = 8;
const MOMENTS: usize = 20;

/// p95 of the error of one noise over some jobs, ns, and the percentage of errors within their bounds.
fn measure(scenario: &ClockScenario, noise: NoiseLevel, seconds: i64, by: AlignChoice) -> (i64, usize) {
    let (mut errors, mut within) = (Vec::new(), 0);
    for seed in 700..712 {
        let job = Job::with_noise(scenario, noise, NODES, seconds, seed);
        let fits = align(&job.observations, by);
        for moment in job.moments(MOMENTS, seed) {
            let fit = &fits[moment.domain];
            let error = (fit.map.map(moment.local).ns() - moment.truth).abs();
            within += usize::from(error <= fit.bar_at(moment.local).unwrap());
            errors.push(error);
        }
    }
    errors.sort_unstable();
    (errors[(errors.len() - 1) * 95 / 100], within * 100 / errors.len())
}

#[test]
fn exits_that_wait_for_cores_do_not_move_what_probes_say() {
    for seconds in [15, 120] {
        let (all, within) = measure(&ClockScenario::QUIET, NoiseLevel::Busy, seconds, AlignChoice::Auto);
        let (probes, _) = measure(&ClockScenario::QUIET, NoiseLevel::Busy, seconds, AlignChoice::Probes);
        assert!(all * 10 <= probes * 11, "{seconds} s: {all} ns, by probes {probes} ns");
        assert!(within >= 95, "{seconds} s: {within} %");
    }
}

#[test]
fn ranks_that_leave_late_for_a_part_of_the_run_do_not_move_what_probes_say() {
    let (all, within) = measure(&ClockScenario::QUIET, NoiseLevel::Moderated, 600, AlignChoice::Auto);
    let (probes, _) = measure(&ClockScenario::QUIET, NoiseLevel::Moderated, 600, AlignChoice::Probes);
    assert!(all * 10 <= probes * 12, "{all} ns, by probes {probes} ns");
    assert!(within >= 93, "{within} %");
}

/// A job of so many seconds on nodes that leave collectives so many ns apart at most: by more than the round
/// trip of a probe.
fn scattered(seconds: i64, apart_ns: u64, seed: u64) -> Job {
    let mut job = Job::with_noise(&ClockScenario::QUIET, NoiseLevel::Quiet, NODES, seconds, seed);
    for (number, meeting) in (0u64..).zip(&mut job.observations.collectives) {
        for one in &mut meeting.intervals {
            let random = XxHash3_64::oneshot(&(number * 64 + u64::from(one.domain)).to_le_bytes());
            one.exit.0 += (random % apart_ns) as i64;
        }
    }
    job
}

#[test]
fn scattered_collectives_join_nodes_that_no_probe_joins() {
    for seed in 720..726 {
        let mut job = scattered(120, 200_000, seed);
        let methods = |job: &Job| -> Vec<AlignMethod> {
            align(&job.observations, AlignChoice::Auto).iter().map(|fit| fit.method).collect()
        };
        assert!(
            methods(&job)[1..].iter().all(|method| *method == AlignMethod::Probes),
            "{:?}",
            methods(&job)
        );
        // No packets go between the first four nodes and the others.
        job.observations.bursts.retain(|burst| (burst.from < 4) == (burst.to < 4));
        let joined = methods(&job);
        assert!(
            joined[4..].iter().all(|method| *method != AlignMethod::RealtimeAnchors),
            "seed {seed}: {joined:?}"
        );
    }
}

#[test]
fn scattered_collectives_count_where_probes_end_early() {
    for seed in 730..736 {
        let mut job = scattered(600, 60_000, seed);
        let started: Vec<i64> = job.observations.sets.iter().map(|sets| sets[0].monotonic_raw).collect();
        let bursts = &job.observations.bursts;
        let is_early = |burst: &&BurstTimes| burst.best[0].t1 - started[burst.from] < 20_000_000_000;
        let early: Vec<BurstTimes> = bursts.iter().filter(is_early).cloned().collect();
        assert!(!early.is_empty() && early.len() < job.observations.bursts.len());
        job.observations.bursts = early;
        let bound_at_the_end = |by: AlignChoice| {
            let fits = align(&job.observations, by);
            let last = job
                .moments(MOMENTS, seed)
                .into_iter()
                .filter(|moment| moment.domain == 3)
                .map(|moment| moment.local);
            fits[3].bar_at(last.max().unwrap()).unwrap()
        };
        let (all, collectives) =
            (bound_at_the_end(AlignChoice::Auto), bound_at_the_end(AlignChoice::Collectives));
        assert!(all <= collectives * 4, "seed {seed}: {all} ns, by collectives {collectives} ns");
    }
}
