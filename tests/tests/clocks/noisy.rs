//! Noise of busy nodes and of cards that moderate interrupts: collectives that mislead are not used, and bounds hold.

use rpd_merge::clock::{Align, align};
use rpd_tests::clocks::{Job, Noise, Scenario};

/// Nodes of a job and moments of each.
const NODES: usize = 8;
const MOMENTS: usize = 20;

/// p95 of the error of one noise over some jobs, ns, and the percentage of errors within their bounds.
fn measure(scenario: &Scenario, noise: Noise, seconds: i64, by: Align) -> (i64, usize) {
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
        let (all, within) = measure(&Scenario::QUIET, Noise::Busy, seconds, Align::Auto);
        let (probes, _) = measure(&Scenario::QUIET, Noise::Busy, seconds, Align::Probes);
        assert!(all * 10 <= probes * 11, "{seconds} s: {all} ns, by probes {probes} ns");
        assert!(within >= 95, "{seconds} s: {within} %");
    }
}

#[test]
fn ranks_that_leave_late_for_a_part_of_the_run_do_not_move_what_probes_say() {
    let (all, within) = measure(&Scenario::QUIET, Noise::Moderated, 600, Align::Auto);
    let (probes, _) = measure(&Scenario::QUIET, Noise::Moderated, 600, Align::Probes);
    assert!(all * 10 <= probes * 12, "{all} ns, by probes {probes} ns");
    assert!(within >= 93, "{within} %");
}
